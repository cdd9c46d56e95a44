"""Run the passes one after another, with the types of each; prove and show each result.

A pass is a frozen dataclass with a ``name`` and ``apply(noun, target) -> noun``; the annotations of
``apply`` say which nouns. All ways lead through the flow:

    schedule - lower -+                                              +- fuse, elide, sync, …
                      +-> flow - instances, channels, … - weave -> program
    algorithm - trace-+
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, get_type_hints
from typing import Protocol as Interface

from weft.dsl.base.errors import CheckFailed, UnknownName, UserError, an
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import Plugin, blamed, expect, plugin_of
from weft.dsl.base.registry import PASSES
from weft.dsl.base.spans import Source, Span
from weft.dsl.base.spec import Item, Option, Spec, parse_specs, split
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import Target

from .analyses.flow import NONE, Flow
from .passes.aggregate import Aggregate
from .passes.channels import Channels
from .passes.fuse import Fuse
from .passes.prune import Dead, Elide, Prune
from .passes.scratch import Scratch
from .passes.sync import Fence, Sync
from .passes.threadblocks import Pairing, ThreadBlocks
from .passes.trace import Trace
from .passes.weave import Weave

MOST_PROVED = 250_000
"""Instructions of a program beyond which it is not proved again after every pass."""

Noun = Algorithm | Flow | Program
"""Nouns that passes return; a schedule is input only."""


_NOUNS: dict[str, type[Noun]] = {
    "algorithm": Algorithm,
    "flow": Flow,
    "program": Program,
}


class Pass(Interface):
    """A pure function from noun to noun; a frozen dataclass whose fields are its options."""

    @property
    def name(self) -> str:
        """The name by which a pipeline text calls it: that of its module."""

    def apply(self, noun: Any, target: Target, /) -> Any:
        """Return the transformed noun."""


DEFAULT_PASSES: tuple[Pass, ...] = (
    Dead(),
    Fuse(),
    Elide(),
    Sync(),
    Scratch(),
    Fence(),
    Prune(),
)
"""Drop unread moves and copies, fuse receives with sends, then remove excess waits and scratch."""


def form(one: object) -> tuple[str, str]:
    """Return the input and output nouns of a pass by name: ("flow", "program") for ``weave``."""
    kind: Any = one if isinstance(one, type) else type(one)
    with blamed(plugin_of(kind), "the annotations of apply"):
        return _nouns(kind.apply)


@cache
def _nouns(apply: Callable[..., Any]) -> tuple[str, str]:
    """The nouns that a pass's ``apply`` takes and returns; a race of programs queries thousands."""
    hints = get_type_hints(apply)
    given = hints.pop("return", Program)
    taken = next(iter(hints.values()), Program)
    return taken.__name__.lower(), given.__name__.lower()


def of_form(passes: Iterable[Pass], taken: str, given: str) -> list[Pass]:
    """Those passes that take the one and give the other, in their order."""
    return [one for one in passes if form(one) == (taken, given)]


@dataclass(eq=False)
class Journal:
    """Results of the passes, to be proved and shown once they are final.

    ``verify`` raises when a program is wrong, ``observe`` sees the program after every pass.
    Algorithms and flows are judged by the plain program that does the same. ``tell`` is called
    with the next step.
    """

    target: Target
    verify: Callable[[Program], None] | None = None
    observe: Callable[[str, Program], None] | None = None
    tell: Callable[[str], None] | None = None
    entries: list[tuple[str, Noun]] = field(default_factory=list)
    plugins: dict[str, Plugin] = field(default_factory=dict)

    def run(self, one: Pass, noun: Any) -> Any:
        """Apply a pass, and remember its result."""
        if self.tell:
            self.tell(one.name)
        kind = _NOUNS.get(form(one)[1], Program)
        made = expect(kind, one.apply(noun, self.target), one, "apply")
        self.add(one.name, made, plugin_of(one))
        return made

    def add(self, name: str, noun: Noun, plugin: Plugin | None = None) -> None:
        """Remember the result of a pass; ``plugin``: its origin if it is another package's."""
        if self.verify or self.observe:
            self.entries.append((name, noun))
        if plugin is not None:
            self.plugins[name] = plugin

    def branch(self) -> Journal:
        """Return a journal that goes on from here, for an attempt that may be given up."""
        return replace(self, entries=[*self.entries])

    def close(self, protocol: Protocol) -> None:
        """Prove and show all entries; of a large program only the result of the last pass.

        Raises:
            CheckFailed: a pass produced a wrong program; names the pass.
        """
        name, last = self.entries[-1] if self.entries else ("", None)
        if not self.observe and isinstance(last, Program) and last.instructions > MOST_PROVED:
            with suppress(CheckFailed):  # then the first pass that is to blame is named
                self._prove(last, name)
                return
        before: Noun | None = None
        for name, noun in self.entries:
            if noun is not before:  # a pass that changed nothing gives what it was given
                program = noun if isinstance(noun, Program) else plain(noun, self.target, protocol)
                self._prove(program, name)
            if self.observe:
                self.observe(name, program)
            before = noun

    def _prove(self, program: Program, name: str) -> None:
        """Judge the result of a pass; an error names the pass."""
        if self.verify is None:
            return
        if self.tell:
            self.tell(f"prove {name}")
        try:
            self.verify(program)
        except CheckFailed as error:
            plugin = self.plugins.get(name)
            which = f"the pass {name}" if plugin is None else plugin
            raise CheckFailed(
                f"after {which}: {error.message}", where=error.where, hint=error.hint
            ) from error


def plain(noun: Algorithm | Flow, target: Target, protocol: Protocol) -> Program:
    """Return the program of a flow at any stage, with no more done to it than must be.

    Raises:
        UserError: it has more connections than the target.
    """
    flow = Trace().apply(noun, target) if isinstance(noun, Algorithm) else noun
    m = flow.messages
    if flow.blocks is None:
        if (m.channel == NONE).any():
            flow = Channels(1, protocol=protocol).apply(flow, target)
        flow = ThreadBlocks(False, protocol, Pairing.FORWARD).apply(flow, target)
    if not (m.level.any() or (m.count > 1).any()):
        flow = Aggregate(protocol, 1).apply(flow, target)
    return Weave("flow", protocol).apply(flow, target)


MANAGED = {"protocol": "--protocol", "label": "--name", "in-place": "--in-place"}
"""Options of passes that the command has flags for."""

ELSEWHERE = {("channels", "count"), ("threadblocks", "count")}
"""Options that follow from those of ``aggregate``."""


def managed(name: str, option: str) -> str:
    """Return the compile option that sets an option of a pass; '' where it is the pass's own."""
    key = option.replace("_", "-")
    return "aggregate{count=…}" if (name, key) in ELSEWHERE else MANAGED.get(key, "")


ORDER = (
    "lower",
    "lift",
    "dead",
    "trace",
    "instances",
    "channels",
    "threadblocks",
    "aggregate",
    "weave",
    "fuse",
    "elide",
    "sync",
    "scratch",
    "fence",
    "prune",
    "chain",
)
"""Order in which passes run; other passes follow."""


def parse_passes(text: str) -> tuple[Pass, ...]:
    """The passes that a text names; one more that keeps chunks apart where none puts them together.

    What reads the input and what gives messages their places must run: lower, trace or lift;
    channels, threadblocks, weave. They run with their defaults where the text does not name them.
    All others run only if it does. Passes on programs run in the order of the text; all before them
    have one order.

    >>> [one.name for one in parse_passes("fuse,channels{lanes=2},prune")]
    ['fuse', 'channels', 'prune', 'aggregate']

    Raises:
        SyntaxProblem, UnknownName, UserError: at their place in the text.
    """
    seen: set[str] = set()
    passes = []
    for spec in parse_specs(text, "--passes"):
        one = _one(spec)
        if form(one) != ("program", "program"):
            if spec.name in seen:
                raise UserError(
                    f"{spec.name} is named twice",
                    where=spec.span,
                    hint="only passes on programs may run again",
                )
            seen.add(spec.name)
        passes.append(one)
    apart = () if Aggregate.name in seen else (Aggregate(count=1),)
    return (*passes, *apart)


SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "channels.policy": "spread",
        "threadblocks.policy": "pairing",
        "lower.order": "order",
        "lower.parts": "parts",
        "channels.lanes": "lanes",
    }
)
"""Settings of passes by ``PASS.OPTION``: the fields of a form and of the compiler's options."""


def parse_settings(text: str) -> dict[str, Any]:
    """Return settings of a form by ``PASS.OPTION``; none if the text is a list of passes.

    >>> parse_settings("threadblocks.policy=none,lower.parts=8")["lower.parts"]
    8

    Raises:
        SyntaxProblem, UnknownName, UserError: at their place in the text.
    """
    items = [Item.of(one.strip()) for one in split(Span(Source("--passes", text), 0, len(text)))]
    if not any(one.key and "{" not in one.key.text for one in items):
        return {}
    found: dict[str, Any] = {}
    for one in items:
        if one.key is None or one.key.text not in SETTINGS:
            named = one.span if one.key is None else one.key
            raise UnknownName("setting of a pass", named.text, SETTINGS, where=named)
        key, (name, _, option) = one.key.text, one.key.text.partition(".")
        if key in found:
            raise UserError(f"{key} is named twice", where=one.key)
        made: Pass = PASSES.create(
            Spec(name, (Option(option, one.value.text, one.key, one.value),), one.span)
        )
        found[key] = getattr(made, option)
    return found


def _one(spec: Spec) -> Pass:
    for option in spec.options:
        place = managed(spec.name, option.key)
        if place:
            raise UserError(
                f"the {option.key} of {spec.name} is not said here",
                where=option.key_span,
                hint=f"say it with {place}",
            )
    made: Pass = PASSES.create(spec)
    return made


def require_applicable(passes: tuple[Pass, ...], subject: str, text: str) -> None:
    """Refuse passes that have nothing to work on: ``subject`` is compiled.

    Raises:
        UserError: such as ``lower`` for an algorithm.
    """
    forms = {(subject, "flow"), ("flow", "flow"), ("flow", "program"), ("program", "program")}
    if subject != "schedule":
        forms |= {("algorithm", "algorithm"), ("algorithm", "flow"), (subject, "algorithm")}
    spans = {spec.name: spec.span for spec in parse_specs(text, "--passes")}
    for one in passes:
        if form(one) not in forms:
            raise UserError(
                f"{one.name} works on {an(form(one)[0])}, which {an(subject)} does not become",
                where=spans.get(one.name),
            )
