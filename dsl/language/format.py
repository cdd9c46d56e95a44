"""Canonical text of a syntax tree: ``format(parse(format(tree))) == format(tree)``.

Comments and paragraphs are kept. Arithmetic has no spaces (``2p+1``), groups have parentheses, a
block of one rule is on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..base.units import format_bytes, parse_bytes
from . import ast
from .ast import Operator

INDENT = "    "
WIDTH = 96
"""Most columns of a line with a block and its one rule."""


def format(tree: ast.SketchTree) -> str:
    """Return the canonical text of a sketch, ending in a newline."""
    parameters = ", ".join(map(_parameter, tree.parameters))
    head = f"sketch {tree.name}" + (f"({parameters})" if tree.parameters else "")
    lines = [*_with_trivia(tree.trivia, head, "")]
    for one in tree.statements:
        lines += _statement(one, "")
    return "\n".join([*lines, *tree.tail]) + "\n"


def rule_text(rule: ast.Rule) -> str:
    """Return the text of a rule without label and comments, also its default label."""
    match rule:
        case ast.OnlyRule(selection=selection):
            return f"only links {_selection(selection)}"
        case ast.ForbidRule(selection=selection):
            return f"forbid links {_selection(selection)}"
        case ast.RelayRule():
            through = ", ".join(map(selector_text, rule.through))
            own = ", own data first" if rule.own_first else ""
            return f"relay {_values(rule.sources)} through {through}{own}"
        case ast.OwnFirstRule(selection=selection):
            return "own data first" + (f" over {_selection(selection)}" if selection else "")
        case ast.SwitchRule():
            return f"switch {ranks_text(rule.switch)}: {_policy(rule.policy)}"
        case ast.SymmetryRule(generators=generators):
            return f"symmetry: {', '.join(map(generator_text, generators))}"
        case ast.ChunksRule(count=count):
            return f"chunks {expression_text(count)}"
        case ast.ChunksBySizeRule(steps=steps, beyond=beyond):
            shown = (f"{expression_text(count)} up to {_size(most)}" for count, most in steps)
            return f"chunks {', '.join(shown)}, {expression_text(beyond)} beyond"
        case ast.MaxHopsRule(count=count):
            return f"max hops {expression_text(count)}"
        case ast.MaxStepsRule(count=count):
            return f"max steps {expression_text(count)}"
        case ast.MaxDetourRule(measure=measure, more=more, percent=percent):
            detour = f"{percent}% of {measure}" if more is None else f"{expression_text(more)} hops"
            return f"max detour {detour}"
        case ast.SendRule():
            return _send(rule)
        case ast.PhasesRule(phases=phases):
            return f"phases: {', '.join(map(phase_text, phases))}"


def selector_text(selector: ast.Selector) -> str:
    """Return the text of one item of a list of links."""
    match selector:
        case ast.Pair(src=src, dst=dst, both_ways=both_ways):
            arrow = "<->" if both_ways else "->"
            return f"{ranks_text(src)} {arrow} {ranks_text(dst)}"
        case ast.BetweenNodes() | ast.WithinNode():
            return _nodes(selector)
        case ast.SameLocalRank():
            return "same local rank"


def phase_text(phase: ast.PhaseLine) -> str:
    """Return the text of one line of ``phases:``."""
    return f"{phase.kind} {_place(phase.place)}"


def _place(place: ast.Place) -> str:
    match place:
        case ast.WithinNode():
            return "within node"
        case ast.ByLocalRank():
            return "across nodes by local rank"
        case ast.InBlocks(size=size):
            return f"in blocks of {expression_text(size)}"
        case ast.AcrossBlocks(size=size):
            return f"across blocks of {expression_text(size)}"
        case ast.Along(axis=axis):
            return f"along {_axis(axis)}"
        case ast.InGroups(groups=groups):
            return f"in {_cycles(groups)}"


def _axis(axis: ast.Dimension) -> str:
    return axis.which if isinstance(axis.which, str) else f"dimension {expression_text(axis.which)}"


def _cycles(cycles: tuple[tuple[ast.Expression, ...], ...]) -> str:
    return "".join(f"({' '.join(map(expression_text, c))})" for c in cycles)


def _nodes(head: ast.BetweenNodes | ast.WithinNode) -> str:
    if isinstance(head, ast.WithinNode):
        return "within node" + (f" {ranks_text(head.hosts)}" if head.hosts is not None else "")
    return "between nodes" + (f" {selector_text(head.hosts)}" if head.hosts is not None else "")


def generator_text(generator: ast.Generator) -> str:
    """Return the text of one permutation of a symmetry."""
    match generator:
        case ast.Rotate(by=by, within_node=within, blocks=blocks, axis=axis):
            where = f" in blocks of {expression_text(blocks)}" if blocks is not None else ""
            where = f" along {_axis(axis)}" if axis is not None else where
            shown = expression_text(by)
            # `rotate nodes` is another move, so a parameter of that name needs parentheses.
            shown = f"({shown})" if re.match(r"nodes\b", shown) else shown
            return f"rotate {shown}{' within node' if within else where}"
        case ast.Reflect(axis=axis):
            return f"reflect along {_axis(axis)}"
        case ast.Swap(one=one, other=other):
            return f"swap {_axis(one)} and {_axis(other)}"
        case ast.RotateNodes(by=by):
            return "rotate nodes" + (f" by {expression_text(by)}" if by is not None else "")
        case ast.Permute(cycles=cycles, within_node=within):
            return f"permute {_cycles(cycles)}{' within node' if within else ''}"


def ranks_text(ranks: ast.Ranks) -> str:
    """Return the text of one side of a pair."""
    match ranks:
        case ast.Any():
            return "any"
        case ast.Range(low=low, high=high):
            return f"{expression_text(low)}..{expression_text(high)}"
        case ast.RangeList(items=items):
            return f"({', '.join(map(ranks_text, items))})"
        case _:
            return expression_text(ranks)


def expression_text(expression: ast.Expression) -> str:
    """Return the text of index arithmetic with the fewest parentheses."""
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
            # Operators of equal precedence associate to the left.
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
        case ast.RuleBlock():
            yield from _block(one, margin)
        case ast.PhasesRule():
            yield from _phases(one, margin)
        case ast.MachineLine() | ast.CollectiveLine() | ast.SizeLine() | ast.EngineLine():
            yield from _with_trivia(one.trivia, _header(one), margin)
        case _:
            yield from _with_trivia(one.trivia, _labelled(one), margin)


def _with_trivia(trivia: ast.Trivia, code: str, margin: str) -> Iterator[str]:
    for note in trivia.above:
        yield f"{margin}{note}" if note else ""
    yield f"{margin}{code}" + (f"  {trivia.beside}" if trivia.beside else "")


def _block(block: ast.RuleBlock, margin: str) -> Iterator[str]:
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


def _phases(rule: ast.PhasesRule, margin: str) -> Iterator[str]:
    yield from _with_trivia(rule.trivia, f"phases{_label(rule)}:", margin)
    for one in rule.phases:
        yield from _with_trivia(one.trivia, phase_text(one), margin + INDENT)
    for note in rule.tail:
        yield f"{margin}{INDENT}{note}" if note else ""


def _on_one_line(block: ast.RuleBlock) -> str | None:
    """Return a block of one rule without own comments as one line; None for other blocks."""
    (one, *more) = block.body
    if more or block.tail or isinstance(one, ast.RuleBlock) or one.trivia != ast.Trivia():
        return None
    return f"{_head(block.head)}: {_labelled(one)}"


def _head(head: ast.Scope) -> str:
    match head:
        case ast.BetweenNodes() | ast.WithinNode():
            return _nodes(head)
        case ast.Loop(variable=variable, values=values):
            return f"for {variable} in {_values(values)}"


def _values(values: ast.RangeList | ast.Any) -> str:
    """Return the text of a list, with parentheses only if it has several items."""
    if isinstance(values, ast.RangeList) and len(values.items) == 1:
        return ranks_text(values.items[0])
    return ranks_text(values)


def _labelled(rule: ast.Rule) -> str:
    return rule_text(rule) + _label(rule)


def _label(rule: ast.Rule) -> str:
    if rule.label is None:
        return ""
    label = rule.label.replace("\\", "\\\\").replace('"', '\\"')
    return f' as "{label}"'


def _header(one: ast.Header) -> str:
    match one:
        case ast.MachineLine(text=text, arguments=arguments):
            shown = ", ".join(map(_argument, arguments))
            return f"machine {text}" + (f"({shown})" if arguments else "")
        case ast.CollectiveLine(name=name):
            return f"collective {name}"
        case ast.SizeLine(low=low, high=high):
            return f"size {_size(low)}" + (f"..{_size(high)}" if high != low else "")
        case ast.EngineLine(text=text):
            return f"engine {text}"


def _size(count: int) -> str:
    """Return the shortest spelling of exactly this many bytes."""
    short = format_bytes(count)
    return short if parse_bytes(short) == count else f"{count}B"


def _parameter(one: ast.Parameter) -> str:
    return one.name if one.default is None else f"{one.name} = {expression_text(one.default)}"


def _argument(one: ast.Argument) -> str:
    return one.name if one.value is None else f"{one.name} = {expression_text(one.value)}"


def _policy(policy: ast.Policy) -> str:
    return policy.word.format("" if policy.limit is None else expression_text(policy.limit))


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
