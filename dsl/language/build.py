"""Parse tree to syntax tree: one method per rule of the grammar, with the rule's name."""

# ruff: noqa: D102 - what a method builds is said by the grammar's rule and by the node's class.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any as Anything

from lark import Token, Tree, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from ..base.errors import SyntaxProblem, UnknownName, UserError, WeftError
from ..base.spans import Source, Span
from ..base.spec import spec_at
from ..base.units import parse_bytes
from ..nouns.collective import Kind
from ..nouns.composition import PHASE_KINDS
from ..nouns.sketch import Measure
from . import ast
from .ast import Operator
from .tokens import Code

MAX_NUMBER = 1 << 31
MAX_DEPTH = 60
"""Largest nesting depth of expressions and blocks."""

Parts = list[Anything]

_ONCE = ast.Header | ast.ChunksRule | ast.ChunksBySizeRule | ast.PhasesRule


@v_args(meta=True)
class TreeBuilder(Transformer_NonRecursive[Token, Anything]):
    """Builder of one text's tree; errors beyond the grammar are collected in ``problems``."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.problems: list[WeftError] = []
        self._source = source

    def build(self, tree: Code) -> Anything:
        """Return the syntax tree, or None if it cannot be built (see ``problems``)."""
        deep = _too_deep(tree)
        if deep is not None:
            where = self._span(deep)
            self.problems.append(SyntaxProblem("nested too deeply", where=where))
            return None
        return self.transform(tree)

    def _span(self, place: Meta | Token) -> Span:
        if isinstance(place, Token):
            return Span(self._source, place.start_pos or 0, place.end_pos or 0)
        return Span(self._source, place.start_pos, place.end_pos)

    # ---- the whole

    def document(self, meta: Meta, parts: Parts) -> ast.SketchTree:
        head, *statements = (p for p in parts if not _is_line_end(p))
        name, parameters, span = head
        self._check_headers(statements)
        return ast.SketchTree(name, parameters, tuple(statements), span=span)

    def rest(self, meta: Meta, parts: Parts) -> None:
        return None

    def sketch(self, meta: Meta, parts: Parts) -> tuple[str, tuple[ast.Parameter, ...], Span]:
        name, *parameters = [p for p in parts if p is not None and not _is_line_end(p)]
        names = [p.name for p in parameters]
        for place, one in enumerate(parameters):
            if one.name in names[:place]:
                self._complain(f"the parameter {one.name!r} is defined twice", one.span)
        # Spans exclude the end of the line.
        code = self._source.text[meta.start_pos : meta.end_pos]
        end = meta.start_pos + len(code.partition("\n")[0].partition("#")[0].rstrip())
        return str(name), tuple(parameters), Span(self._source, meta.start_pos, end)

    def parameter(self, meta: Meta, parts: Parts) -> ast.Parameter:
        return ast.Parameter(str(parts[0]), parts[1], span=self._span(meta))

    def machine_text(self, meta: Meta, parts: Parts) -> ast.MachineLine:
        return ast.MachineLine(str(parts[0]), span=self._span(meta))

    def machine_call(self, meta: Meta, parts: Parts) -> ast.MachineLine:
        arguments = tuple(p for p in parts[1:] if p is not None)
        return ast.MachineLine(str(parts[0]), arguments, span=self._span(meta))

    def argument(self, meta: Meta, parts: Parts) -> ast.Argument:
        return ast.Argument(str(parts[0]), parts[1], span=self._span(meta))

    def collective(self, meta: Meta, parts: Parts) -> ast.CollectiveLine:
        known = [str(k) for k in Kind if k is not Kind.CUSTOM]
        if parts[0] not in known:
            where = self._span(parts[0])
            self.problems.append(UnknownName("collective", str(parts[0]), known, where=where))
        return ast.CollectiveLine(str(parts[0]), span=self._span(meta))

    def size(self, meta: Meta, parts: Parts) -> ast.SizeLine:
        low = self._bytes(parts[0])
        high = self._bytes(parts[1]) if parts[1] is not None else low
        if not 0 < low <= high:
            hint = "sizes are positive, the smaller one first: size 1KiB..1GiB"
            self._complain("not a valid range of message sizes", self._span(meta), hint)
        return ast.SizeLine(low, high, span=self._span(meta))

    def engine(self, meta: Meta, parts: Parts) -> ast.EngineLine:
        try:
            spec = spec_at(self._span(parts[0]))
        except WeftError as error:
            self.problems.append(error)
            return ast.EngineLine(str(parts[0]), span=self._span(meta))
        return ast.EngineLine(str(spec), spec, span=self._span(meta))

    def _bytes(self, token: Token) -> int:
        try:
            return parse_bytes(str(token))
        except UserError as error:
            self._complain(error.message, self._span(token), error.hint)
            return 1

    def _check_headers(self, statements: Sequence[ast.Statement]) -> None:
        """Report headers, ``chunks`` and ``phases`` that occur more than once."""
        first: dict[str, Span | None] = {}
        for one in statements:
            if isinstance(one, _ONCE) and one.span is not None:
                word = one.span.text.split()[0]
                if (before := first.setdefault(word, one.span)) is not one.span and before:
                    message = f"{word!r} is given twice, first on line {before.line}"
                    self._complain(message, one.span, "keep one of them")

    def _complain(self, message: str, where: Span | None, hint: str = "") -> None:
        self.problems.append(SyntaxProblem(message, where=where, hint=hint))

    # ---- blocks

    def block(self, meta: Meta, parts: Parts) -> ast.RuleBlock:
        head, *body = (p for p in parts if not _is_line_end(p))
        return ast.RuleBlock(head, tuple(body), span=head.span)

    def loop(self, meta: Meta, parts: Parts) -> ast.Loop:
        return ast.Loop(str(parts[0]), parts[1], span=self._span(meta))

    # ---- phases

    def phases(self, meta: Meta, parts: Parts) -> ast.PhasesRule:
        word, label, *lines = (p for p in parts if not _is_line_end(p))
        return ast.PhasesRule(tuple(lines), label=_unquoted(label), span=self._span(word))

    def phase(self, meta: Meta, parts: Parts) -> ast.PhaseLine:
        known = sorted(PHASE_KINDS)
        if parts[0] not in known:
            where = self._span(parts[0])
            self.problems.append(UnknownName("phase", str(parts[0]), known, where=where))
        return ast.PhaseLine(str(parts[0]), parts[1], span=self._span(meta))

    def by_local_rank(self, meta: Meta, parts: Parts) -> ast.ByLocalRank:
        return ast.ByLocalRank(span=self._span(meta))

    def groups(self, meta: Meta, parts: Parts) -> ast.InGroups:
        return ast.InGroups(tuple(parts), span=self._span(meta))

    def blocks(self, meta: Meta, parts: Parts) -> ast.InBlocks:
        return ast.InBlocks(parts[0], span=self._span(meta))

    def across_blocks(self, meta: Meta, parts: Parts) -> ast.AcrossBlocks:
        return ast.AcrossBlocks(parts[0], span=self._span(meta))

    def along(self, meta: Meta, parts: Parts) -> ast.Along:
        return ast.Along(parts[0], span=self._span(meta))

    def inside(self, meta: Meta, parts: Parts) -> ast.WithinNode:
        return ast.WithinNode(span=self._span(meta))

    def axis_letter(self, meta: Meta, parts: Parts) -> ast.Dimension:
        return ast.Dimension(str(parts[0]), span=self._span(meta))

    def axis_number(self, meta: Meta, parts: Parts) -> ast.Dimension:
        return ast.Dimension(parts[0], span=self._span(meta))

    # ---- rules

    def rule(self, meta: Meta, parts: Parts) -> ast.Rule:
        kind, label = parts
        return kind if label is None else replace(kind, label=_unquoted(label))  # type: ignore[no-any-return]

    def only(self, meta: Meta, parts: Parts) -> ast.OnlyRule:
        return ast.OnlyRule(parts[0], span=self._span(meta))

    def forbid(self, meta: Meta, parts: Parts) -> ast.ForbidRule:
        return ast.ForbidRule(parts[0], span=self._span(meta))

    def relay(self, meta: Meta, parts: Parts) -> ast.RelayRule:
        sources, *through, own_first = parts
        return ast.RelayRule(sources, tuple(through), own_first is True, span=self._span(meta))

    def own_first(self, meta: Meta, parts: Parts) -> bool:
        return True

    def own_order(self, meta: Meta, parts: Parts) -> ast.OwnFirstRule:
        return ast.OwnFirstRule(parts[0], span=self._span(meta))

    def switch(self, meta: Meta, parts: Parts) -> ast.SwitchRule:
        return ast.SwitchRule(parts[0], parts[1], span=self._span(meta))

    def few(self, meta: Meta, parts: Parts) -> ast.Few:
        return ast.Few(span=self._span(meta))

    def many(self, meta: Meta, parts: Parts) -> ast.Many:
        return ast.Many(span=self._span(meta))

    def at_most(self, meta: Meta, parts: Parts) -> ast.AtMost:
        return ast.AtMost(parts[0], span=self._span(meta))

    def reduce_only(self, meta: Meta, parts: Parts) -> ast.UseOnly:
        return ast.UseOnly(ast.SwitchUse.REDUCE, span=self._span(meta))

    def multicast_only(self, meta: Meta, parts: Parts) -> ast.UseOnly:
        return ast.UseOnly(ast.SwitchUse.MULTICAST, span=self._span(meta))

    def forward_only(self, meta: Meta, parts: Parts) -> ast.UseOnly:
        return ast.UseOnly(ast.SwitchUse.OFF, span=self._span(meta))

    def groups_at_most(self, meta: Meta, parts: Parts) -> ast.GroupsAtMost:
        return ast.GroupsAtMost(parts[0], span=self._span(meta))

    def symmetry(self, meta: Meta, parts: Parts) -> ast.SymmetryRule:
        return ast.SymmetryRule(tuple(parts), span=self._span(meta))

    def chunks(self, meta: Meta, parts: Parts) -> ast.ChunksRule:
        return ast.ChunksRule(parts[0], span=self._span(meta))

    def up_to(self, meta: Meta, parts: Parts) -> tuple[ast.Expression, int]:
        return parts[0], self._bytes(parts[1])

    def chunks_by_size(self, meta: Meta, parts: Parts) -> ast.ChunksBySizeRule:
        *steps, beyond = parts
        sizes = [size for _, size in steps]
        if not all(a < b for a, b in pairwise([0, *sizes])):
            self._complain(
                "these sizes must increase",
                self._span(meta),
                "chunks 1 up to 64KiB, 2 up to 1MiB, 8 beyond",
            )
        return ast.ChunksBySizeRule(tuple(steps), beyond, span=self._span(meta))

    def max_hops(self, meta: Meta, parts: Parts) -> ast.MaxHopsRule:
        return ast.MaxHopsRule(parts[0], span=self._span(meta))

    def max_steps(self, meta: Meta, parts: Parts) -> ast.MaxStepsRule:
        return ast.MaxStepsRule(parts[0], span=self._span(meta))

    def detour_hops(self, meta: Meta, parts: Parts) -> ast.MaxDetourRule:
        return ast.MaxDetourRule(Measure.HOPS, more=parts[0], span=self._span(meta))

    def detour_of_hops(self, meta: Meta, parts: Parts) -> ast.MaxDetourRule:
        return self._detour(Measure.HOPS, meta, parts)

    def detour_of_alpha(self, meta: Meta, parts: Parts) -> ast.MaxDetourRule:
        return self._detour(Measure.ALPHA, meta, parts)

    def _detour(self, measure: Measure, meta: Meta, parts: Parts) -> ast.MaxDetourRule:
        percent = self._number(parts[0].update(value=parts[0][:-1]))
        return ast.MaxDetourRule(measure, percent=percent, span=self._span(meta))

    def send(self, meta: Meta, parts: Parts) -> ast.SendRule:
        return self._send(meta, parts, never=False)

    def never(self, meta: Meta, parts: Parts) -> ast.SendRule:
        return self._send(meta, parts, never=True)

    def _send(self, meta: Meta, parts: Parts, *, never: bool) -> ast.SendRule:
        piece, owner, target, (src, dst), step = parts
        where = self._span(meta)
        return ast.SendRule(piece, owner, src, dst, target, step, never, span=where)

    def one_chunk(self, meta: Meta, parts: Parts) -> ast.Expression:
        return parts[0]  # type: ignore[no-any-return]

    def every_chunk(self, meta: Meta, parts: Parts) -> None:
        return None

    def hop(self, meta: Meta, parts: Parts) -> tuple[ast.Expression, ast.Expression]:
        return parts[0], parts[1]

    to_rank = one_chunk
    at_step = one_chunk

    # ---- links and ranks

    def selection(self, meta: Meta, parts: Parts) -> ast.Selection:
        *selectors, exceptions = parts
        return ast.Selection(tuple(selectors), exceptions or (), span=self._span(meta))

    def exceptions(self, meta: Meta, parts: Parts) -> tuple[ast.Selector, ...]:
        return tuple(parts)

    def between_nodes(self, meta: Meta, parts: Parts) -> ast.BetweenNodes:
        return ast.BetweenNodes(parts[0], span=self._span(meta))

    def within_node(self, meta: Meta, parts: Parts) -> ast.WithinNode:
        return ast.WithinNode(parts[0] if parts else None, span=self._span(meta))

    def same_local_rank(self, meta: Meta, parts: Parts) -> ast.SameLocalRank:
        return ast.SameLocalRank(span=self._span(meta))

    def one_way(self, meta: Meta, parts: Parts) -> ast.Pair:
        return ast.Pair(parts[0], parts[1], span=self._span(meta))

    def both_ways(self, meta: Meta, parts: Parts) -> ast.Pair:
        return ast.Pair(parts[0], parts[1], both_ways=True, span=self._span(meta))

    def ranks(self, meta: Meta, parts: Parts) -> ast.RangeList | ast.Any:
        return parts[0]  # type: ignore[no-any-return]

    def values(self, meta: Meta, parts: Parts) -> ast.RangeList:
        if isinstance(parts[0], ast.RangeList):
            return parts[0]
        return ast.RangeList(tuple(parts), span=self._span(meta))

    def group(self, meta: Meta, parts: Parts) -> ast.RangeList | ast.Range:
        if len(parts) == 1:
            return parts[0]  # type: ignore[no-any-return]
        return ast.RangeList(tuple(parts), span=self._span(meta))

    def range(self, meta: Meta, parts: Parts) -> ast.Range:
        return ast.Range(parts[0], parts[1], span=self._span(meta))

    def any(self, meta: Meta, parts: Parts) -> ast.Any:
        return ast.Any(span=self._span(meta))

    # ---- symmetry

    def rotate(self, meta: Meta, parts: Parts) -> ast.Rotate:
        by, where = parts
        within = isinstance(where, ast.WithinNode)
        blocks = where.size if isinstance(where, ast.InBlocks) else None
        axis = where.axis if isinstance(where, ast.Along) else None
        return ast.Rotate(by, within, blocks, axis, span=self._span(meta))

    def reflect(self, meta: Meta, parts: Parts) -> ast.Reflect:
        return ast.Reflect(parts[0].axis, span=self._span(meta))

    def swap(self, meta: Meta, parts: Parts) -> ast.Swap:
        return ast.Swap(parts[0], parts[1], span=self._span(meta))

    def rotate_nodes(self, meta: Meta, parts: Parts) -> ast.RotateNodes:
        return ast.RotateNodes(parts[0], span=self._span(meta))

    def permute(self, meta: Meta, parts: Parts) -> ast.Permute:
        *cycles, within = parts
        return ast.Permute(tuple(cycles), within is not None, span=self._span(meta))

    def cycle(self, meta: Meta, parts: Parts) -> tuple[ast.Expression, ...]:
        return tuple(parts)

    # ---- arithmetic

    def number(self, meta: Meta, parts: Parts) -> ast.Number:
        return ast.Number(self._number(parts[0]), span=self._span(meta))

    def _number(self, token: Token) -> int:
        # Long digit strings are refused by length: int() itself is slow on them, or raises.
        if len(token) <= 10 and (value := int(token)) < MAX_NUMBER:
            return value
        self._complain("the number is too large", self._span(token))
        return 0

    def name(self, meta: Meta, parts: Parts) -> ast.Name:
        return ast.Name(str(parts[0]), span=self._span(meta))

    def quoted(self, meta: Meta, parts: Parts) -> ast.Quoted:
        return ast.Quoted(str(parts[0])[1:-1], span=self._span(meta))

    def times_name(self, meta: Meta, parts: Parts) -> ast.Binary:
        factor = ast.Number(self._number(parts[0]), span=self._span(parts[0]))
        name = ast.Name(str(parts[1]), span=self._span(parts[1]))
        return ast.Binary(Operator.MULTIPLY, factor, name, span=self._span(meta))

    def _binary(self, operator: Operator, meta: Meta, parts: Parts) -> ast.Binary:
        return ast.Binary(operator, parts[0], parts[1], span=self._span(meta))

    def add(self, meta: Meta, parts: Parts) -> ast.Binary:
        return self._binary(Operator.ADD, meta, parts)

    def subtract(self, meta: Meta, parts: Parts) -> ast.Binary:
        return self._binary(Operator.SUBTRACT, meta, parts)

    def multiply(self, meta: Meta, parts: Parts) -> ast.Binary:
        return self._binary(Operator.MULTIPLY, meta, parts)

    def divide(self, meta: Meta, parts: Parts) -> ast.Binary:
        return self._binary(Operator.DIVIDE, meta, parts)

    def modulo(self, meta: Meta, parts: Parts) -> ast.Binary:
        return self._binary(Operator.MODULO, meta, parts)


def _unquoted(label: Token | None) -> str | None:
    return None if label is None else label[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def _is_line_end(part: object) -> bool:
    return isinstance(part, Token) and part.type in ("_NL", "_INDENT", "_DEDENT")


def _too_deep(tree: Code) -> Meta | None:
    """Return the position of a node nested too deeply, if any, without recursion."""
    queue = [(tree, 0)]
    while queue:
        node, depth = queue.pop()
        if depth > MAX_DEPTH:
            return node.meta
        queue += [(c, depth + 1) for c in node.children if isinstance(c, Tree)]
    return None
