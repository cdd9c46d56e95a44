"""Canonical text of a syntax tree: ``format(parse(format(tree))) == format(tree)``.

Comments and paragraphs are kept. Arithmetic lacks spaces (``2p+1``), groups have parentheses, a
block of one rule is on one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from string import Formatter
from typing import Any

from ..base.units import format_bytes, parse_bytes
from . import ast
from .ast import Operator

INDENT = "    "
WIDTH = 96
"""Most columns of a line with a block and its one rule."""


def format(tree: ast.SketchTree) -> str:
    """Return the canonical text of a sketch, ending in a newline."""
    lines = [*_with_trivia(tree.trivia, text_of(tree), "")]
    for one in tree.statements:
        lines += _statement(one, "")
    return "\n".join([*lines, *tree.tail]) + "\n"


def text_of(node: ast.Syntax) -> str:
    """Return the text of a part of a sketch, with the fewest parentheses and on one line.

    Of a rule without label and comments, so that it is also its default label; of a sketch and of
    a block the first line.
    """
    form = _FORMS[type(node)]
    parts = _OPTIONAL.split(form if isinstance(form, str) else form(node))
    return "".join(_filled(part, node, optional=i % 2 == 1) for i, part in enumerate(parts))


def _filled(part: str, node: ast.Syntax, *, optional: bool) -> str:
    names = [name for _, name, _, _ in Formatter().parse(part) if name]
    values = {name: getattr(node, name) for name in names}
    first = values[names[0]] if optional else True
    if first is None or first is False or first == ():
        return ""
    return part.format_map({name: _value(value) for name, value in values.items()})


def _value(value: Any) -> str:
    match value:
        case ast.Syntax():
            return text_of(value)
        case True:
            return ""
        case ((_, int()), *_):
            return ", ".join(f"{text_of(count)} up to {_size(most)}" for count, most in value)
        case (tuple(), *_):
            return "".join(f"({' '.join(map(text_of, cycle))})" for cycle in value)
        case tuple():
            return ", ".join(map(text_of, value))
        case _:
            return str(value)


def _size(count: int) -> str:
    """Return the shortest spelling of exactly this many bytes."""
    short = format_bytes(count)
    return short if parse_bytes(short) == count else f"{count}B"


# --- forms ----------------------------------------------------------------------------------------


def _binary(one: ast.Binary) -> str:
    rank = _binds(one)
    if rank == _TIGHT:
        return "{left}{right}"
    # Operators of equal precedence associate to the left.
    left = "({left})" if _binds(one.left) < rank else "{left}"
    right = "({right})" if _binds(one.right) <= rank else "{right}"
    return left + one.operator + right


def _binds(expression: ast.Expression) -> int:
    match expression:
        case ast.Binary(Operator.MULTIPLY, ast.Number(), ast.Name()):
            return _TIGHT
        case ast.Binary(operator=Operator.ADD | Operator.SUBTRACT):
            return 1
        case ast.Binary():
            return 2
        case _:
            return _TIGHT


_TIGHT = 3


def _rotate(one: ast.Rotate) -> str:
    # `rotate nodes` is another move, so a parameter of that name needs parentheses.
    by = "({by})" if re.match(r"nodes\b", text_of(one.by)) else "{by}"
    return f"rotate {by}[ in blocks of {{blocks}}][ along {{axis}}][ within node{{within_node}}]"


_OPTIONAL = re.compile(r"\[([^][]*)\]")
_FORMS: Mapping[type[ast.Syntax], str | Callable[[Any], str]] = {
    ast.Number: "{value}",
    ast.Name: "{text}",
    ast.Quoted: '"{text}"',
    ast.Binary: _binary,
    ast.Range: "{low}..{high}",
    ast.RangeList: lambda one: "({items})" if len(one.items) > 1 else "{items}",
    ast.Any: "any",
    ast.Pair: lambda one: "{src} <-> {dst}" if one.both_ways else "{src} -> {dst}",
    ast.BetweenNodes: "between nodes[ {hosts}]",
    ast.WithinNode: "within node[ {hosts}]",
    ast.SameLocalRank: "same local rank",
    ast.Selection: "{selectors}[ except {exceptions}]",
    ast.Dimension: lambda one: "{which}" if isinstance(one.which, str) else "dimension {which}",
    ast.Rotate: _rotate,
    ast.Reflect: "reflect along {axis}",
    ast.Swap: "swap {one} and {other}",
    ast.RotateNodes: "rotate nodes[ by {by}]",
    ast.Permute: "permute {cycles}[ within node{within_node}]",
    ast.Argument: "{name}[ = {value}]",
    ast.Parameter: "{name}[ = {default}]",
    ast.SketchTree: "sketch {name}[({parameters})]",
    ast.MachineLine: "machine {text}[({arguments})]",
    ast.CollectiveLine: "collective {name}",
    ast.SizeLine: lambda one: (
        f"size {_size(one.low)}" + (f"..{_size(one.high)}" if one.high != one.low else "")
    ),
    ast.EngineLine: "engine {text}",
    ast.OnlyRule: "only links {selection}",
    ast.ForbidRule: "forbid links {selection}",
    ast.RelayRule: "relay {sources} through {through}[, own data first{own_first}]",
    ast.OwnFirstRule: "own data first[ over {selection}]",
    ast.SwitchRule: "switch {switch}: {policy}",
    ast.Policy: lambda one: one.word.format("{limit}"),
    ast.SymmetryRule: "symmetry: {generators}",
    ast.ChunksRule: "chunks {count}",
    ast.ChunksBySizeRule: "chunks {steps}, {beyond} beyond",
    ast.MaxHopsRule: "max hops {count}",
    ast.MaxStepsRule: "max steps {count}",
    ast.MaxDetourRule: lambda one: (
        "max detour {percent}% of {measure}" if one.more is None else "max detour {more} hops"
    ),
    ast.SendRule: lambda one: (
        ("never send " if one.never else "send ")
        + ("chunk {piece}" if one.piece else "any chunk" if one.never else "every chunk")
        + " of rank {owner}[ to rank {target}] over {src} -> {dst}[ at step {step}]"
    ),
    ast.PhasesRule: "phases: {phases}",
    ast.PhaseLine: "{kind} {place}",
    ast.ByLocalRank: "across nodes by local rank",
    ast.InBlocks: "in blocks of {size}",
    ast.AcrossBlocks: "across blocks of {size}",
    ast.Along: "along {axis}",
    ast.InGroups: "in {groups}",
    ast.Loop: "for {variable} in {values}",
}
"""Text of each node: fields in braces; a part in brackets is there if its field is."""


# --- lines ----------------------------------------------------------------------------------------


def _statement(one: ast.Statement | ast.PhaseLine, margin: str) -> Iterator[str]:
    body: tuple[ast.Statement | ast.PhaseLine, ...] = ()
    tail: tuple[str, ...] = ()
    match one:
        case ast.RuleBlock():
            code, body, tail = f"{text_of(one.head)}:", one.body, one.tail
            inline = _on_one_line(one)
            if inline is not None and len(margin) + len(inline) <= WIDTH:
                code, body = inline, ()
        case ast.PhasesRule():
            code, body, tail = f"phases{_label(one)}:", one.phases, one.tail
        case _:
            code = text_of(one) + _label(one)
    yield from _with_trivia(one.trivia, code, margin)
    for each in body:
        yield from _statement(each, margin + INDENT)
    for note in tail:
        yield f"{margin}{INDENT}{note}" if note else ""


def _with_trivia(trivia: ast.Trivia, code: str, margin: str) -> Iterator[str]:
    for note in trivia.above:
        yield f"{margin}{note}" if note else ""
    yield f"{margin}{code}" + (f"  {trivia.beside}" if trivia.beside else "")


def _on_one_line(block: ast.RuleBlock) -> str | None:
    """Return a block of one rule without own comments as one line; None for other blocks."""
    (one, *more) = block.body
    if more or block.tail or isinstance(one, ast.RuleBlock) or one.trivia != ast.Trivia():
        return None
    return f"{text_of(block.head)}: {text_of(one)}{_label(one)}"


def _label(one: ast.Statement | ast.PhaseLine) -> str:
    label = getattr(one, "label", None)
    if label is None:
        return ""
    label = label.replace("\\", "\\\\").replace('"', '\\"')
    return f' as "{label}"'
