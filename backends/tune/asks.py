"""Questions for the engines: every kind of schedule that may be quickest at some size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.language.elaborate import elaborate, machine_of
from weft.dsl.language.load import catalogue_names, find_sketch
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.library import FOUND_IN_SWITCHES
from weft.dsl.nouns.problem import Objective
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.classic.in_network import InNetwork
from weft.synth.engines.classic.lanes import Laned
from weft.synth.engines.classic.place import find_algorithm, names_for

from .effort import EFFORT

PIECES = (1, 4)
"""Pipeline pieces of classic algorithms, besides those of their best."""

BASELINES = {
    Kind.ALLREDUCE: (
        "ring",
        "rings",
        "double_tree",
        "rail_tree",
        "two_level",
        "recursive_doubling",
    ),
    Kind.ALLGATHER: ("ring", "rings", "two_level", "recursive_doubling"),
    Kind.REDUCE_SCATTER: ("ring", "rings", "two_level", "recursive_halving"),
    Kind.ALLTOALL: ("pairwise", "spread_out"),
    Kind.BROADCAST: ("ring", "rings", "double_tree", "chain", "binomial"),
    Kind.REDUCE: ("rings", "double_tree", "chain", "binomial"),
    Kind.GATHER: ("direct", "binomial"),
    Kind.SCATTER: ("direct", "binomial"),
}
"""Baselines, available to a runtime without a synthesizer: rings, trees and hierarchies, one or
several at once (NCCL's tuning, ``src/graph/tuning.cc``), doubling and halving (MPICH), direct sends
for alltoall."""


@dataclass(frozen=True, slots=True)
class Named:
    """A sketch: its text, its name, and the values of its parameters."""

    name: str
    text: str
    arguments: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> str:
        """Return the sketch as on the command line, ``dgx2_relay:nodes=2``."""
        values = ",".join(f"{k}={v}" for k, v in self.arguments)
        return f"{self.name}:{values}" if values else self.name

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for a job."""
        return {"name": self.name, "text": self.text, "arguments": dict(self.arguments)}


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to one engine.

    Attributes:
        name: of the resulting schedules, unique among the asks of a race.
        engine: its text. ``objective``: as ``weft synth`` has it. ``size``: bytes of the message
            to be quick at, for the objective time.
        sketch: the rules to keep, if any.
        baseline: whether a runtime would find it without us.
        one_shot: request the allgather of all ranks' buffers; each rank sums locally.
        switches: let switches sum and copy, where the machine has such.
        message_us: cost of a message, in µs; None: the default.
    """

    name: str
    engine: str
    objective: Objective = Objective.TIME
    size: int | None = None
    sketch: Named | None = None
    baseline: bool = False
    one_shot: bool = False
    switches: bool = False
    message_us: Fraction | None = None


def asks(
    topology: Topology,
    collective: Collective,
    sizes: SizeRange,
    sketches: Sequence[Named] = (),
    engines: tuple[str, ...] = (),
    message_us: Fraction | None = None,
) -> list[Ask]:
    """Return all questions for a collective on a machine, the cheap ones first.

    ``engines``: instead of those that are usual; the baseline always runs. ``message_us``: for
    which the runtime's messages hold a NIC, if they do: schedules of few messages are asked for.
    """
    found = list(_classic(topology, collective))
    ladder = _ladder(sizes)
    if engines:
        found += [_at(e, n) for e in engines for n in ladder]
    else:
        found += list(_synthesized(topology, collective, ladder))
        if message_us is not None:
            found += [_of_few_messages(n, message_us) for n in ladder[1:-1] or ladder]
    return [*found, *asks_of_sketches(sketches, sizes_of_sketches(sizes))]


def asks_of_sketches(sketches: Iterable[Named], sizes: Sequence[int]) -> Iterator[Ask]:
    """Yield the questions that keep the rules of sketches, at some sizes."""
    for sketch in dict.fromkeys(sketches):
        yield from (_at("portfolio", n, sketch) for n in sizes)


def sizes_of_sketches(sizes: SizeRange) -> list[int]:
    """Return the sizes at which sketches are tried, the least first: fewer than those without."""
    ladder = _ladder(sizes)
    return ladder[1::2] or ladder


def asks_of_switches(
    topology: Topology,
    collective: Collective,
    sizes: SizeRange,
    engines: tuple[str, ...] = (),
) -> Iterator[Ask]:
    """Yield the questions whose answers may have sums and copies of switches.

    ``engines``: instead of those that are usual; only trees know switches.
    """
    for name in names_for(collective.kind):
        if isinstance(find_algorithm(name, collective.kind), InNetwork):
            text = f"classic{{algorithm={name}}}"
            yield Ask(name, text, Objective.TIME, sizes.high, switches=True)
    ladder = _ladder(sizes)
    named = {engine.partition("{")[0] for engine in engines}
    if not named or named & {"packing", "portfolio"}:
        for size in dict.fromkeys((ladder[0], ladder[len(ladder) // 2], ladder[-1])):
            one = _at("packing", size)
            yield replace(one, name=f"{FOUND_IN_SWITCHES}{one.name}", switches=True)


def again(
    questions: Sequence[Ask], ranks: int, sizes: SizeRange, engines: tuple[str, ...] = ()
) -> list[Ask]:
    """Return the questions of a short race.

    All engines (or those that the user names) at both ends of the sizes, which take longest; then
    baselines and sketches. For few ranks, all questions.
    """
    if ranks <= EFFORT.exact_ranks:
        return list(questions)
    ends, asked = (sizes.low, sizes.high), engines or ("portfolio",)
    searches = [q for q in questions if q.engine in asked and q.size in ends and not q.sketch]
    return [*searches, *(q for q in questions if q.baseline or q.sketch)]


def _ladder(sizes: SizeRange) -> list[int]:
    """Return sizes from low to high, at most ``asked_octaves`` octaves apart."""
    powers = list(sizes.powers())
    return sorted({*powers[:: EFFORT.asked_octaves], powers[-1]})


def _classic(topology: Topology, collective: Collective) -> Iterator[Ask]:

    for name in names_for(collective.kind):
        usual = name in BASELINES.get(collective.kind, ())
        one = find_algorithm(name, collective.kind)
        if isinstance(one, InNetwork):  # no program says what switches sum or copy
            continue
        if isinstance(one, Laned) and _messages(one, topology) > EFFORT.program_instructions:
            continue
        for pieces in PIECES if one.pipelined else (1,):
            text = f"classic{{algorithm={name},chunks={pieces}}}"
            words = name if pieces == 1 else f"{name} in {pieces} pieces"
            yield Ask(words, text, Objective.BANDWIDTH, baseline=usual)


def _messages(one: Laned, topology: Topology) -> int:
    """Return about how many messages an algorithm in lanes has, or more: some for each step, rank
    and lane. Of more than ``program_instructions`` no program would be timed."""
    ranks = topology.ranks
    if ranks < 2:
        return 0
    in_host = sum(link.src == 0 for link in topology.links)
    lanes = ranks // topology.hosts if topology.hosts > 1 else in_host
    return one.cost(ranks, max(1, lanes)).steps * ranks * lanes


def _synthesized(topology: Topology, collective: Collective, ladder: list[int]) -> Iterator[Ask]:
    if topology.ranks <= EFFORT.exact_ranks:
        yield Ask("exact", "exact", Objective.FRONTIER)
    for size in ladder:
        yield _at("portfolio", size)
    if collective.kind is Kind.ALLREDUCE:
        # Of small messages even N whole copies are quick, and one exchange has the fewest hops.
        for engine in ("portfolio", "classic"):
            for size in ladder[: len(ladder) // 2]:
                name = f"one shot, {engine} {format_bytes(size)}"
                yield replace(_at(engine, size), name=name, one_shot=True)
    # Fewer trees lose a little bandwidth, and make programs with fewer and longer messages.
    if collective.kind is not Kind.ALLTOALL:
        for trees in (1, 2):
            for size in dict.fromkeys((ladder[len(ladder) // 2], ladder[-1])):
                yield _at(f"packing{{trees={trees},segments={EFFORT.slices}}}", size)


def _at(engine: str, size: int, sketch: Named | None = None) -> Ask:
    words = engine if sketch is None else sketch.words
    return Ask(f"{words} {format_bytes(size)}", engine, Objective.TIME, size, sketch)


def _of_few_messages(size: int, message_us: Fraction) -> Ask:
    """Return the question where messages cost what they take in the runtime. At the least size
    latencies decide, at the largest bytes."""
    name = f"few messages, {format_bytes(size)}"
    return replace(_at("portfolio", size), name=name, message_us=message_us)


def fitting_sketches(topology: Topology, collective: Collective) -> list[Named]:
    """Return the sketches of the catalogue that name this machine, and this collective or none."""

    found = []
    for name in catalogue_names():
        source = find_sketch(name)
        tree = parse(source.text, source.name)
        for arguments in ({}, {"nodes": topology.hosts}):
            try:
                machine = machine_of(tree, arguments)
                if machine is None or machine.digest() != topology.digest():
                    continue
                sketch = elaborate(tree, topology, arguments)
            except UserError:
                continue
            if sketch.collective in ("", str(collective.kind), collective.name):
                found.append(Named(name, source.text, tuple(arguments.items())))
                break
    return found
