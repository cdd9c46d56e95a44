"""A pipeline as text: ``channels{lanes=2},aggregate,fuse,sync,prune``.

What reads the input and what gives messages their places must run: lower, trace or lift; channels,
threadblocks, weave. They run with their defaults where the text does not name them. All others run
only if it does. Passes on programs run in the order of the text; all before them have one order.

>>> [one.name for one in parse_passes("fuse,channels{lanes=2},prune")]
['fuse', 'channels', 'prune', 'aggregate']
"""

from __future__ import annotations

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.registry import PASSES
from weft.dsl.base.spec import Spec, parse_specs

from .passes.aggregate import Aggregate
from .pipeline import Pass, form

MANAGED = {"protocol": "--protocol", "label": "--name", "in-place": "--in-place"}
"""Options of passes that the command has flags for."""

ELSEWHERE = {("channels", "count"), ("threadblocks", "count")}
"""Options that follow from those of ``aggregate``."""


def managed(name: str, option: str) -> str:
    """Where an option of a pass is really said; nothing where it is the pass's own."""
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
"""In which they run; those of others stand behind."""


def parse_passes(text: str, origin: str = "--passes") -> tuple[Pass, ...]:
    """The passes that a text names; one more that keeps chunks apart where none puts them together.

    Raises:
        SyntaxProblem, UnknownName, UserError: at their place in the text.
    """
    seen: set[str] = set()
    passes = []
    for spec in parse_specs(text, origin):
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
