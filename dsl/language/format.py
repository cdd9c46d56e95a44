"""Syntax tree to its one canonical text: ``format(parse(format(tree))) == format(tree)``.

Comments and paragraphs stay. Arithmetic is written tight (``2p+1``), groups in parentheses,
a block of one rule on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..units import format_bytes, parse_bytes
from . import ast
from .ast import Operator

INDENT = "    "
WIDTH = 96
"""A block and its one rule share a line up to this many columns."""


def format(tree: ast.SketchText) -> str:
    """The canonical text of a sketch, with a line end at its end."""
    parameters = ", ".join(map(_parameter, tree.parameters))
    head = f"sketch {tree.name}" + (f"({parameters})" if tree.parameters else "")
    lines = [*_with_trivia(tree.trivia, head, "")]
    for one in tree.statements:
        lines += _statement(one, "")
    return "\n".join([*lines, *tree.tail]) + "\n"


def rule_text(rule: ast.Rule) -> str:
    """A rule as it is written, without its label and comments: what it calls itself."""
    match rule:
        case ast.OnlyRule(selection=selection):
            return f"only links {_selection(selection)}"
        case ast.ForbidRule(selection=selection):
            return f"forbid links {_selection(selection)}"
        case ast.RelayRule():
            through = ", ".join(map(selector_text, rule.through))
            own = ", own data first" if rule.own_first else ""
            return f"relay {_values(rule.sources)} through {through}{own}"
        case ast.SwitchRule():
            return f"switch {ranks_text(rule.switch)}: {_policy(rule.policy)}"
        case ast.SymmetryRule(generators=generators):
            return f"symmetry: {', '.join(map(generator_text, generators))}"
        case ast.ChunksRule(count=count):
            return f"chunks {expression_text(count)}"
        case ast.MaxHopsRule(count=count):
            return f"max hops {expression_text(count)}"
        case ast.MaxStepsRule(count=count):
            return f"max steps {expression_text(count)}"
        case ast.SendRule():
            return _send(rule)


def selector_text(selector: ast.Selector) -> str:
    """One item of a list of links."""
    match selector:
        case ast.Pair(src=src, dst=dst, both_ways=both_ways):
            arrow = "<->" if both_ways else "->"
            return f"{ranks_text(src)} {arrow} {ranks_text(dst)}"
        case ast.BetweenNodes():
            return "between nodes"
        case ast.WithinNode():
            return "within node"
        case ast.SameLocalRank():
            return "same local rank"


def generator_text(generator: ast.Generator) -> str:
    """One move of a symmetry."""
    match generator:
        case ast.Rotate(by=by, within_node=within, blocks=blocks):
            where = f" in blocks of {expression_text(blocks)}" if blocks is not None else ""
            shown = expression_text(by)
            # `rotate nodes` is another move; a parameter of that name stands in parentheses.
            shown = f"({shown})" if re.match(r"nodes\b", shown) else shown
            return f"rotate {shown}{' within node' if within else where}"
        case ast.RotateNodes(by=by):
            return "rotate nodes" + (f" by {expression_text(by)}" if by is not None else "")
        case ast.Permute(cycles=cycles, within_node=within):
            moved = "".join(f"({' '.join(map(expression_text, c))})" for c in cycles)
            return f"permute {moved}{' within node' if within else ''}"


def ranks_text(ranks: ast.Ranks) -> str:
    """One side of a pair."""
    match ranks:
        case ast.Any():
            return "any"
        case ast.Range(low=low, high=high):
            return f"{expression_text(low)}..{expression_text(high)}"
        case ast.Group(items=items):
            return f"({', '.join(map(ranks_text, items))})"
        case _:
            return expression_text(ranks)


def expression_text(expression: ast.Expression) -> str:
    """Index arithmetic, with no more parentheses than it needs."""
    match expression:
        case ast.Number(value=value):
            return str(value)
        case ast.Name(text=text):
            return text
        case ast.Quoted(text=text):
            return f'"{text}"'
        case ast.Binary(Operator.MULTIPLY, ast.Number(value=value), ast.Name(text=text)):
            return f"{value}{text}"
        case ast.Binary(operator, left, right):
            rank = _binds(expression)
            a, b = expression_text(left), expression_text(right)
            # Operators of one rank group to the left.
            a = f"({a})" if _binds(left) < rank else a
            b = f"({b})" if _binds(right) <= rank else b
            return f"{a}{operator}{b}"


def _binds(expression: ast.Expression) -> int:
    match expression:
        case ast.Binary(Operator.MULTIPLY, ast.Number(), ast.Name()):
            return 3
        case ast.Binary(operator=Operator.ADD | Operator.SUBTRACT):
            return 1
        case ast.Binary():
            return 2
        case _:
            return 3


def _statement(one: ast.Statement, margin: str) -> Iterator[str]:
    match one:
        case ast.Block():
            yield from _block(one, margin)
        case ast.MachineLine() | ast.CollectiveLine() | ast.SizeLine():
            yield from _with_trivia(one.trivia, _header(one), margin)
        case _:
            yield from _with_trivia(one.trivia, _labelled(one), margin)


def _with_trivia(trivia: ast.Trivia, code: str, margin: str) -> Iterator[str]:
    for note in trivia.above:
        yield f"{margin}{note}" if note else ""
    yield f"{margin}{code}" + (f"  {trivia.beside}" if trivia.beside else "")


def _block(block: ast.Block, margin: str) -> Iterator[str]:
    head = _head(block.head)
    inline = _on_one_line(block)
    if inline is not None and len(margin) + len(inline) <= WIDTH:
        yield from _with_trivia(block.trivia, inline, margin)
        return
    yield from _with_trivia(block.trivia, f"{head}:", margin)
    for one in block.body:
        yield from _statement(one, margin + INDENT)
    for note in block.tail:
        yield f"{margin}{INDENT}{note}" if note else ""


def _on_one_line(block: ast.Block) -> str | None:
    """A block of one rule without comments of its own as one line; None for other blocks."""
    (one, *more) = block.body
    if more or block.tail or isinstance(one, ast.Block) or one.trivia != ast.Trivia():
        return None
    return f"{_head(block.head)}: {_labelled(one)}"


def _head(head: ast.Scope) -> str:
    match head:
        case ast.BetweenNodes():
            return "between nodes"
        case ast.WithinNode():
            return "within node"
        case ast.Loop(variable=variable, values=values):
            return f"for {variable} in {_values(values)}"


def _values(values: ast.Group | ast.Any) -> str:
    """A list that needs parentheses only if it has several items."""
    if isinstance(values, ast.Group) and len(values.items) == 1:
        return ranks_text(values.items[0])
    return ranks_text(values)


def _labelled(rule: ast.Rule) -> str:
    if rule.label is None:
        return rule_text(rule)
    label = rule.label.replace("\\", "\\\\").replace('"', '\\"')
    return f'{rule_text(rule)} as "{label}"'


def _header(one: ast.Header) -> str:
    match one:
        case ast.MachineLine(text=text, arguments=arguments):
            shown = ", ".join(map(_argument, arguments))
            return f"machine {text}" + (f"({shown})" if arguments else "")
        case ast.CollectiveLine(name=name):
            return f"collective {name}"
        case ast.SizeLine(low=low, high=high):
            return f"size {_size(low)}" + (f"..{_size(high)}" if high != low else "")


def _size(count: int) -> str:
    """The shortest spelling that means exactly this many bytes."""
    short = format_bytes(count)
    return short if parse_bytes(short) == count else f"{count}B"


def _parameter(one: ast.Parameter) -> str:
    return one.name if one.default is None else f"{one.name} = {expression_text(one.default)}"


def _argument(one: ast.Argument) -> str:
    return one.name if one.value is None else f"{one.name} = {expression_text(one.value)}"


def _policy(policy: ast.Few | ast.Many | ast.AtMost) -> str:
    match policy:
        case ast.Few():
            return "few peers"
        case ast.Many():
            return "many peers"
        case ast.AtMost(limit=limit):
            return f"at most {expression_text(limit)} peers"


def _send(rule: ast.SendRule) -> str:
    every = "any chunk" if rule.never else "every chunk"
    what = every if rule.piece is None else f"chunk {expression_text(rule.piece)}"
    owner, src, dst = map(expression_text, (rule.owner, rule.src, rule.dst))
    target = f" to rank {expression_text(rule.target)}" if rule.target is not None else ""
    step = f" at step {expression_text(rule.step)}" if rule.step is not None else ""
    verb = "never send" if rule.never else "send"
    return f"{verb} {what} of rank {owner}{target} over {src} -> {dst}{step}"


def _selection(selection: ast.Selection) -> str:
    shown = ", ".join(map(selector_text, selection.selectors))
    if not selection.exceptions:
        return shown
    return f"{shown} except {', '.join(map(selector_text, selection.exceptions))}"
