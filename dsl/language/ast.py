"""Syntax tree of a sketch: frozen nodes with source spans.

Equality ignores spans and includes comments and blank lines, so that
``parse(format(tree)) == tree`` proves that the formatter loses nothing.

A node that ends in ``Rule`` is a line of the sketch; :class:`RuleBlock` groups lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum

from ..base.lazy_dataclass import Frozen
from ..base.spans import Span
from ..base.spec import Spec
from ..base.tables import count
from ..nouns.sketch import Measure


class Syntax(Frozen, kw_only=True):
    """Base of all nodes; ``span`` is the source location (None in trees built by a program)."""

    span: Span | None = field(default=None, compare=False, repr=False)


# ---- index arithmetic


class Operator(StrEnum):
    """Operators of index arithmetic; ``//`` and ``%`` round down as in Python."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "//"
    MODULO = "%"


class Number(Syntax):
    """A non-negative number."""

    value: int


class Name(Syntax):
    """A loop variable, a parameter, or a node or family of nodes of the machine."""

    text: str


class Quoted(Syntax):
    """A node whose name is not an identifier: ``"leaf-3"``."""

    text: str


class Binary(Syntax):
    """``left operator right``; ``2p`` is the product of the number 2 and the name p."""

    operator: Operator
    left: Expression
    right: Expression


Expression = Number | Name | Quoted | Binary

# ---- ranks


class Range(Syntax):
    """``low..high``, both included."""

    low: Expression
    high: Expression


class RangeList(Syntax):
    """``(0, 2, 4..7)``. As a side of a pair it has at least two items."""

    items: tuple[Expression | Range, ...]


class Any(Syntax):
    """``any``: every rank (for a switch policy: every switch)."""


Ranks = Expression | Range | RangeList | Any

# ---- links


class Pair(Syntax):
    """``src -> dst``, or both ways ``src <-> dst``: all pairs of the two sides."""

    src: Ranks
    dst: Ranks
    both_ways: bool = False


class BetweenNodes(Syntax):
    """Pairs of GPUs in different hosts; in its block, numbers are local ranks.

    ``hosts`` gives source and destination hosts by number; None is from any to any other.
    """

    hosts: Pair | None = None


class WithinNode(Syntax):
    """Pairs of GPUs in one host; in its block, numbers are local ranks.

    ``hosts`` gives the hosts by number; None is all.
    """

    hosts: Ranks | None = None


class SameLocalRank(Syntax):
    """Pairs of GPUs with the same local rank in different hosts."""


Selector = Pair | BetweenNodes | WithinNode | SameLocalRank


class Selection(Syntax):
    """Union of ``selectors`` minus the union of ``exceptions``."""

    selectors: tuple[Selector, ...]
    exceptions: tuple[Selector, ...] = ()


# ---- dimensions


class Dimension(Syntax):
    """A dimension of a grid: ``x``, ``y``, ``z`` (a text), or ``dimension 3`` (a number)."""

    which: str | Expression


# ---- symmetries


class Rotate(Syntax):
    """Rotation r -> r + ``by`` in the machine, each host, each block or one grid dimension."""

    by: Expression
    within_node: bool = False
    blocks: Expression | None = None
    axis: Dimension | None = None


class Reflect(Syntax):
    """``reflect along x``: mirror a grid in one dimension."""

    axis: Dimension


class Swap(Syntax):
    """``swap x and y``: exchange two dimensions of equal size."""

    one: Dimension
    other: Dimension


class RotateNodes(Syntax):
    """Rotation of the hosts by ``by`` (None: by one)."""

    by: Expression | None = None


class Permute(Syntax):
    """A permutation in cycle notation; ranks in no cycle are fixed."""

    cycles: tuple[tuple[Expression, ...], ...]
    within_node: bool = False


Generator = Rotate | Reflect | Swap | RotateNodes | Permute

# ---- lines


class Trivia(Frozen):
    """Comments and blank lines around a line.

    ``above`` holds comments with their ``#``, and ``""`` for a blank line; ``beside`` is the
    comment at the end of the line itself, or empty.
    """

    above: tuple[str, ...] = ()
    beside: str = ""


class SketchLine(Syntax, kw_only=True):
    """A line with its comments."""

    trivia: Trivia = field(default=Trivia())


class Argument(Syntax):
    """Argument ``nodes=4`` of a machine; ``nodes`` alone (value None) passes that parameter."""

    name: str
    value: Expression | None = None


class MachineLine(SketchLine):
    """The machine: catalogue text, or a catalogue name with arguments."""

    text: str
    arguments: tuple[Argument, ...] = ()


class CollectiveLine(SketchLine):
    """The collective."""

    name: str


class SizeLine(SketchLine):
    """Message sizes in bytes, from ``low`` to ``high``, both included."""

    low: int
    high: int


class EngineLine(SketchLine):
    """The proposed engine, ``packing{trees=4}``; ``spec`` holds the spans of its parts."""

    text: str
    spec: Spec | None = field(default=None, compare=False, repr=False)


class RuleLine(SketchLine, kw_only=True):
    """A rule; ``label`` is the name given by ``as``, or None."""

    label: str | None = None


class OnlyRule(RuleLine):
    """``only links …``."""

    selection: Selection


class ForbidRule(RuleLine):
    """``forbid links …``."""

    selection: Selection


class RelayRule(RuleLine):
    """``relay sources through pairs``: how chunks of some ranks leave their host."""

    sources: RangeList | Any
    through: tuple[Pair, ...]
    own_first: bool = False


class OwnFirstRule(RuleLine):
    """``own data first``, over some links (None: all links of the block)."""

    selection: Selection | None = None


class SwitchWord(StrEnum):
    """A rule's demand on a switch: peers of a GPU over it, or the only thing that it does beside
    forwarding; ``{}`` stands for a number."""

    FEW = "few peers"
    MANY = "many peers"
    AT_MOST = "at most {} peers"
    REDUCE = "reduce"
    MULTICAST = "multicast"
    OFF = "off"
    GROUPS_AT_MOST = "groups at most {}"


class Policy(Syntax):
    """The words of a rule about a switch, and their number."""

    word: SwitchWord
    limit: Expression | None = None


class SwitchRule(RuleLine):
    """``switch name: few peers``, ``switch name: reduce``."""

    switch: Name | Quoted | Any
    policy: Policy


class SymmetryRule(RuleLine):
    """``symmetry: …``: the schedule is invariant under each of these permutations."""

    generators: tuple[Generator, ...]


class ChunksRule(RuleLine):
    """``chunks N``."""

    count: Expression


class ChunksBySizeRule(RuleLine):
    """``chunks 1 up to 64KiB, 8 beyond``: counts with the bytes up to which each holds."""

    steps: tuple[tuple[Expression, int], ...]
    beyond: Expression


class MaxHopsRule(RuleLine):
    """``max hops N``."""

    count: Expression


class MaxStepsRule(RuleLine):
    """``max steps N``."""

    count: Expression


class MaxDetourRule(RuleLine):
    """``max detour 1 hops`` (an expression), or ``max detour 50% of alpha`` (per cent)."""

    measure: Measure
    more: Expression | None = None
    percent: int = 0


class SendRule(RuleLine):
    """``[never] send chunk … of rank … [to rank …] over src -> dst [at step …]``.

    ``piece`` None is every chunk of the owner, ``target`` None any destination, ``step`` None any
    step.
    """

    piece: Expression | None
    owner: Expression
    target: Expression | None
    src: Expression
    dst: Expression
    step: Expression | None = None
    never: bool = False


# ---- phases


class ByLocalRank(Syntax):
    """``across nodes by local rank``: GPUs with the same local rank in all hosts."""


class InBlocks(Syntax):
    """``in blocks of N``: consecutive ranks."""

    size: Expression


class AcrossBlocks(Syntax):
    """``across blocks of N``: ranks at the same position of all blocks of consecutive ranks."""

    size: Expression


class Along(Syntax):
    """``along x``: the lines of a grid in one dimension."""

    axis: Dimension


class InGroups(Syntax):
    """``in (0 1)(2 3)``: explicit groups of ranks."""

    groups: tuple[tuple[Expression, ...], ...]


Place = WithinNode | ByLocalRank | InBlocks | AcrossBlocks | Along | InGroups


class PhaseLine(SketchLine):
    """A collective, and the groups of ranks that run it at the same time."""

    kind: str
    place: Place


class PhasesRule(RuleLine):
    """``phases:`` and its lines; ``tail`` holds the comments after the last one.

    The span is that of the head.
    """

    phases: tuple[PhaseLine, ...]
    tail: tuple[str, ...] = ()


Rule = (
    OnlyRule
    | ForbidRule
    | RelayRule
    | OwnFirstRule
    | SwitchRule
    | SymmetryRule
    | ChunksRule
    | ChunksBySizeRule
    | MaxHopsRule
    | MaxStepsRule
    | MaxDetourRule
    | SendRule
    | PhasesRule
)


class Loop(Syntax):
    """``for variable in values``."""

    variable: str
    values: RangeList


Scope = BetweenNodes | WithinNode | Loop


class RuleBlock(SketchLine):
    """Lines under a head; ``tail`` holds the comments after the last one.

    The span is that of the head.
    """

    head: Scope
    body: tuple[Rule | RuleBlock, ...]
    tail: tuple[str, ...] = ()


Header = MachineLine | CollectiveLine | SizeLine | EngineLine
Statement = Header | Rule | RuleBlock


class Parameter(Syntax):
    """A parameter of the sketch with its default."""

    name: str
    default: Expression | None = None


class SketchTree(SketchLine):
    """A whole sketch. ``trivia`` and span are those of its ``sketch`` line."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    statements: tuple[Statement, ...] = ()
    tail: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(one.name for one in self.parameters)
        asks = f", of {names}" if names else ""
        return f"<SketchTree {self.name}: {count(sum(1 for _ in self.rules()), 'rule')}{asks}>"

    def rules(self) -> Iterator[Rule]:
        """Yield all rules in text order, including those in blocks."""
        return _rules(self.statements)


def _rules(statements: tuple[Statement, ...]) -> Iterator[Rule]:
    for one in statements:
        if isinstance(one, RuleBlock):
            yield from _rules(one.body)
        elif not isinstance(one, Header):
            yield one
