"""Parse tree to syntax tree.

A rule of the grammar has the name of the node that it makes (``max_hops_rule`` of ``MaxHopsRule``),
whose fields are the parts of the rule in their order. The others are in ``_MADE``, or are methods.
"""

# ruff: noqa: D102 - the result of a method is stated by the grammar's rule and by the node's class.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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

MAX_NUMBER = 1 << 31
MAX_DEPTH = 60
"""Largest nesting depth of expressions and blocks."""

Code = Tree[Token]
Parts = list[Anything]

_MADE: dict[str, Callable[..., Anything]] = {
    **{one.name.lower(): partial(ast.Binary, one) for one in Operator},
    **{one.name.lower(): partial(ast.Policy, one) for one in ast.SwitchWord},
    "machine_call": lambda name, *given, span: ast.MachineLine(
        name, tuple(one for one in given if one is not None), span=span
    ),
    "both_ways": partial(ast.Pair, both_ways=True),
    "never": partial(ast.SendRule, never=True),
    "detour_hops": partial(ast.MaxDetourRule, Measure.HOPS),
    "detour_of_hops": partial(ast.MaxDetourRule, Measure.HOPS, None),
    "detour_of_alpha": partial(ast.MaxDetourRule, Measure.ALPHA, None),
    "groups": lambda *cycles, span: ast.InGroups(cycles, span=span),
    "symmetry": lambda *moves, span: ast.SymmetryRule(moves, span=span),
    "cycle": lambda *ranks, span: ranks,
    "exceptions": lambda *selectors, span: selectors,
    "own_first": lambda span: True,
    "every_chunk": lambda span: None,
    "rest": lambda *_, span: None,
}
"""Builders of other rules from their parts."""

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

    def __default__(self, data: str, children: Parts, meta: Meta) -> Anything:
        """Return the node of a rule without a method."""
        make = _MADE.get(data) or getattr(ast, data.title().replace("_", ""))
        parts = (str(one) if isinstance(one, Token) else one for one in children)
        return make(*parts, span=self._span(meta))

    # ---- the whole

    def document(self, meta: Meta, parts: Parts) -> ast.SketchTree:
        head, *statements = (p for p in parts if not _is_line_end(p))
        name, parameters, span = head
        self._check_headers(statements)
        return ast.SketchTree(name, parameters, tuple(statements), span=span)

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

    # ---- rules

    def rule(self, meta: Meta, parts: Parts) -> ast.Rule:
        kind, label = parts
        return kind if label is None else replace(kind, label=_unquoted(label))  # type: ignore[no-any-return]

    def relay(self, meta: Meta, parts: Parts) -> ast.RelayRule:
        sources, *through, own_first = parts
        return ast.RelayRule(sources, tuple(through), own_first is True, span=self._span(meta))

    def percent(self, meta: Meta, parts: Parts) -> int:
        return self._number(parts[0].update(value=parts[0][:-1]))

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

    # ---- links and ranks

    def selection(self, meta: Meta, parts: Parts) -> ast.Selection:
        *selectors, exceptions = parts
        return ast.Selection(tuple(selectors), exceptions or (), span=self._span(meta))

    def values(self, meta: Meta, parts: Parts) -> ast.RangeList:
        if isinstance(parts[0], ast.RangeList):
            return parts[0]
        return ast.RangeList(tuple(parts), span=self._span(meta))

    def group(self, meta: Meta, parts: Parts) -> ast.RangeList | ast.Range:
        if len(parts) == 1:
            return parts[0]  # type: ignore[no-any-return]
        return ast.RangeList(tuple(parts), span=self._span(meta))

    # ---- symmetry

    def rotate(self, meta: Meta, parts: Parts) -> ast.Rotate:
        by, where = parts
        within = isinstance(where, ast.WithinNode)
        blocks = where.size if isinstance(where, ast.InBlocks) else None
        axis = where.axis if isinstance(where, ast.Along) else None
        return ast.Rotate(by, within, blocks, axis, span=self._span(meta))

    def permute(self, meta: Meta, parts: Parts) -> ast.Permute:
        *cycles, within = parts
        return ast.Permute(tuple(cycles), within is not None, span=self._span(meta))

    # ---- arithmetic

    def number(self, meta: Meta, parts: Parts) -> ast.Number:
        return ast.Number(self._number(parts[0]), span=self._span(meta))

    def _number(self, token: Token) -> int:
        # Long digit strings are refused by length: int() itself is slow on them, or raises.
        if len(token) <= 10 and (value := int(token)) < MAX_NUMBER:
            return value
        self._complain("the number is too large", self._span(token))
        return 0

    def quoted(self, meta: Meta, parts: Parts) -> ast.Quoted:
        return ast.Quoted(str(parts[0])[1:-1], span=self._span(meta))

    def times_name(self, meta: Meta, parts: Parts) -> ast.Binary:
        factor = ast.Number(self._number(parts[0]), span=self._span(parts[0]))
        name = ast.Name(str(parts[1]), span=self._span(parts[1]))
        return ast.Binary(Operator.MULTIPLY, factor, name, span=self._span(meta))


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
