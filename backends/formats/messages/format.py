"""Base of formats whose files are message graphs: check, run, show and time them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count, microseconds, number
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import P2P
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.schedule_time import simulate

from ...check.checks import Check, of_findings
from ...check.findings import Finding, require_good
from ...compile.analyses.unroll import unrolled
from ...compile.passes.lift import Lift
from ...compile.request import ProvedArtefact, Request
from ...execute.execute import Execution
from ..format import ExecutionRequest, FileTiming, Format, Requirements
from .judge import check_graph, run_graph
from .lower import SumTime, graph_of_algorithm, graph_of_schedule
from .model import LIMITS, GraphNode, GraphNodeKind, MessageGraph

GOOD = "every message has both ends, nothing waits for itself; every output is proved"


@dataclass(frozen=True, slots=True)
class PlannedGraph:
    """A graph to be written, and the plan that it follows, where there is a machine.

    ``schedule``: with ``pieces`` of its chunks as chunks. ``start_us``: of its transfers in weft's
    simulation, which ends at ``time_us``.
    """

    graph: MessageGraph
    schedule: Schedule | None = None
    start_us: Sequence[float] = ()
    time_us: float = 0.0
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class MessageFormat(Format, ABC):
    """Files of sends, receives and sums, one set for one message size.

    ``min_message_bytes``: chunks are cut into as many pieces as the schedule has segments, or fewer
    where messages were shorter than this on average; ``--segments N`` cuts them into N.
    """

    rule: ClassVar[str] = ""
    """The rule by which its files are timed, in a few words."""
    thread_blocks: ClassVar[bool] = False
    no_casts: ClassVar[str] = "a message has one sender and one receiver"
    most_executed: ClassVar[int | None] = 1 << 20
    min_message_bytes: int = 4096

    # --- files ------------------------------------------------------------------------------------

    @abstractmethod
    def graphs(self, text: str, where: str) -> dict[str, MessageGraph]:
        """Return the graphs in a file, one for each message size, by a name ('' for one alone).

        Raises:
            BadFile: it is not well formed.
        """

    @abstractmethod
    def graph_us(self, graph: MessageGraph, topology: Topology | None) -> float:
        """Return the time of a graph by the rule, in µs.

        Raises:
            UserError: the file is not timed without a machine, and none is known.
        """

    def read(self, text: str, where: str) -> dict[str, MessageGraph]:
        return self.graphs(text, where)

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        if asked.target:
            raise UserError("--target is for MSCCL XML", where=where)
        found = self.graphs(text, where)
        checks = [
            Check("form", True, f"{self._label(name)}{_form(g)}") for name, g in found.items()
        ]
        return [*checks, *of_findings(_findings(found), GOOD)]

    def findings(self, text: str, where: str, target: str | None = None) -> Sequence[Finding]:
        """Return the judge's findings; of a file that states its collective no error is a proof."""
        return _findings(self.graphs(text, where))

    def collective(self, text: str, where: str) -> Collective:
        return _collective(self.graphs(text, where)) or self._untold(where)

    def _untold(self, where: str) -> NoReturn:
        raise UserError(
            f"the {self.noun} does not state its collective, so that no result can be compared",
            where=where,
            hint="weft states it in those that it writes",
        )

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        """Move random integers as the files say; no order of nodes can change the result."""
        done = Execution(False, "there is nothing to execute")
        for graph in self.graphs(text, where).values():
            own = graph.collective or self.collective(text, where)
            wanted = request.collective or own
            if (wanted.kind, wanted.ranks, wanted.roots) != (own.kind, own.ranks, own.roots):
                return Execution(False, f"the file states {own}, not {wanted}")
            done = run_graph(graph, own, request.seed)
            if not done.ok:
                return done
        return done

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        found = self.graphs(text, where)
        lines = []
        for name, graph in found.items():
            lines.append(f"{graph.name or self.name}: {self._label(name)}{_form(graph)}")
            for rank, own in enumerate(graph.ranks):
                lines += [
                    f"rank {rank}",
                    *(f"  {i:>3}  {_line(node)}" for i, node in enumerate(own)),
                ]
        return "\n".join(lines), facts_of(next(iter(found.values())))

    def timing(self, text: str, where: str) -> FileTiming:
        """Return how the files are timed, each at the size that it is for.

        A file that does not state its collective is for no size (0).

        Raises:
            CheckFailed: it is wrong.
        """
        found = self.graphs(text, where)
        require_good(_findings(found), where)
        by_size = {graph.message_bytes: graph for graph in found.values()}
        ranks = len(next(iter(found.values())).ranks)

        def time_us(size: int, topology: Topology) -> float:
            if size not in by_size:
                sizes = ", ".join(map(format_bytes, sorted(by_size)))
                raise UserError(f"the file is for messages of {sizes}", where=where)
            return self.graph_us(by_size[size], topology)

        return FileTiming(_collective(found), ranks, tuple(sorted(by_size)), self.rule, time_us)

    def _label(self, name: str) -> str:
        return f"{name}: " if name else ""

    # --- compiling --------------------------------------------------------------------------------

    def planned(
        self, request: Request, message_bytes: int, sum_ps: SumTime, pieces: int | None = None
    ) -> PlannedGraph:
        """Return the graph of something to compile, for messages of one size, and its plan.

        ``pieces`` of every chunk of a schedule: default: as :attr:`min_message_bytes` says.

        Raises:
            UserError: it says no size, or the graph is too large.
        """
        if self.min_message_bytes < 1:
            raise UserError(
                f"min_message_bytes is {self.min_message_bytes}; at least 1", where=self.name
            )
        noun = request.noun
        if isinstance(noun, Schedule):
            topology, c = noun.topology, noun.collective
            pieces = pieces or self._pieces(request, message_bytes)
            one = noun if noun.segments == 1 else replace(noun, segments=1)
            schedule = unrolled(noun, pieces) if pieces > 1 else one
            name = request.name or f"{topology.name} {c.name or c.kind}"
            graph = graph_of_schedule(schedule, name, message_bytes, sum_ps)
            found = simulate(schedule, message_bytes)
            return PlannedGraph(graph, schedule, found.start_us.tolist(), found.time_us, pieces)
        algorithm = Lift().apply(noun, P2P) if isinstance(noun, Program) else noun
        assert isinstance(algorithm, Algorithm)
        graph = graph_of_algorithm(algorithm, message_bytes, sum_ps)
        return PlannedGraph(replace(graph, name=request.name or graph.name))

    def _pieces(self, request: Request, message_bytes: int) -> int:
        """Return the pieces of every chunk: those requested, or the schedule's segments."""
        noun: Schedule = request.noun
        if request.segments > 1 or noun.segments == 1:
            return request.segments
        return min(noun.segments, self.most_pieces(noun, message_bytes))

    def most_pieces(self, schedule: Schedule, message_bytes: int) -> int:
        """Return the pieces of every chunk that ``min_message_bytes`` allows."""
        c = schedule.collective
        grains = int(c.grains[schedule.chunk].sum()) // max(1, len(schedule))
        return max(1, message_bytes * grains // (c.message_chunks * self.min_message_bytes))

    def sizes_of(self, request: Request) -> tuple[int, ...]:
        """Return the message sizes to write files for: those requested, or the schedule's.

        Raises:
            UserError: none are given.
        """
        if request.sizes is not None:
            return request.sizes.powers()
        if isinstance(request.noun, Schedule) and request.noun.bytes is not None:
            return (request.noun.bytes,)
        raise UserError(
            f"{self.noun}s are for one message size, and none is given",
            where=request.where or None,
            hint="--size 1MiB",
        )

    def proved(
        self,
        request: Request,
        text: str,
        planned: Sequence[PlannedGraph],
        tell: ProgressCallback,
        remarks: tuple[tuple[str, str], ...] = (),
    ) -> ProvedArtefact:
        """Read and judge the written files, replay them, return the graph; ``planned``: by size.

        Raises:
            CheckFailed: it is wrong.
        """
        tell("prove")
        found = self.graphs(text, "the artefact")
        require_good(_findings(found), "the artefact")
        first = next(iter(found.values()))
        tell("replay")
        times = self._times(planned, found)
        told = [("Timed", _timed(self.rule, one)) for one in times]
        facts = {**facts_of(first), "to": self.name, "times": times}
        facts["bytes"] = [graph.message_bytes for graph in found.values()]
        pieces = [one.pieces for one in planned]
        segments = getattr(request.noun, "segments", 1)
        if max(*pieces, segments) > 1:
            asked = request.segments > 1
            cut = _cut(pieces, 0 if asked else segments, self.min_message_bytes)
            told.insert(0, ("Sliced", cut))
            facts |= {"segments": segments, "pieces": max(pieces), "sliced": cut}
        check = Check("messages", True, GOOD)
        return ProvedArtefact(text, first, _size(first), GOOD, check, facts, told=(*remarks, *told))

    def _times(
        self, planned: Sequence[PlannedGraph], found: dict[str, MessageGraph]
    ) -> list[dict[str, Any]]:
        """Return for each size µs by the rule of the simulator and by weft's."""
        times = []
        for plan, graph in zip(planned, found.values(), strict=True):
            if plan.schedule is None or len(plan.schedule) > LIMITS.messages:
                continue
            topology = plan.schedule.topology
            times.append(
                {
                    "bytes": graph.message_bytes,
                    "us": number(self.graph_us(graph, topology)),
                    "without_sums_us": number(self.graph_us(without_sums(graph), topology)),
                    "schedule_us": number(plan.time_us),
                }
            )
        return times


def without_sums(graph: MessageGraph) -> MessageGraph:
    """Return the graph with sums that take no time, as in weft's simulation of schedules."""
    if not any(node.ps for _, _, node in graph.nodes()):
        return graph
    ranks = (tuple(replace(node, ps=0) for node in own) for own in graph.ranks)
    return replace(graph, ranks=tuple(ranks))


def facts_of(graph: MessageGraph) -> dict[str, Any]:
    """Return a graph for ``--json``."""
    c = graph.collective
    return {
        "name": graph.name,
        "collective": None if c is None else c.name or str(c.kind),
        "ranks": len(graph.ranks),
        "bytes": graph.message_bytes or None,
        "messages": graph.count(GraphNodeKind.SEND),
        "sums": graph.count(GraphNodeKind.SUM),
    }


def _collective(found: dict[str, MessageGraph]) -> Collective | None:
    return next((g.collective for g in found.values() if g.collective is not None), None)


def _cut(pieces: Sequence[int], segments: int, floor: int) -> str:
    """Return a sentence on the pieces of chunks; ``segments``: the schedule's, where they count."""
    least, most = min(pieces), max(pieces)
    several = f"{least} to {most}" if least < most else f"{most}"
    told = f"every chunk is cut into {several} pieces that follow each other"
    if most == 1:
        told = "chunks are not cut"
    if least < segments:
        told += (
            f", the schedule has {segments} segments: messages of at least {format_bytes(floor)} "
            "(min_message_bytes), --segments N cuts them further"
        )
    return told


def _findings(found: dict[str, MessageGraph]) -> list[Finding]:
    return [finding for graph in found.values() for finding in check_graph(graph)]


def _size(graph: MessageGraph) -> str:
    sizes = (
        count(len(graph.ranks), "rank"),
        count(graph.count(GraphNodeKind.SEND), "message"),
        count(graph.count(GraphNodeKind.SUM), "sum"),
    )
    return ", ".join(sizes)


def _form(graph: MessageGraph) -> str:
    told = _size(graph)
    if graph.collective is not None:
        told = f"{graph.collective}, {told.partition(', ')[2]}"
    return f"{told}, for {format_bytes(graph.message_bytes)}" if graph.message_bytes else told


def _line(node: GraphNode) -> str:
    words = [f"{node.kind} {node.bytes} B" if node.bytes else str(node.kind)]
    if not node.local:
        words.append(
            f"{'to' if node.kind is GraphNodeKind.SEND else 'from'} {node.peer}, tag {node.tag}"
        )
    elif node.ps:
        words.append(f"{node.ps / 1e6:g} µs")
    named: list[tuple[str, tuple[int, ...], Callable[[int], str]]] = [
        ("of", node.inputs, lambda i: f"i[{i}]"),
        ("needs", node.needs, str),
        ("waits for", node.waits, str),
        ("after", node.after, str),
        ("into", node.outputs, lambda i: f"o[{i}]"),
    ]
    words += [f"{word} {' '.join(map(one, numbers))}" for word, numbers, one in named if numbers]
    return ", ".join(words)


def _timed(rule: str, one: dict[str, Any]) -> str:
    ours, theirs, network = (one[key] for key in ("schedule_us", "us", "without_sums_us"))
    sums = f" ({microseconds(network)} without sums)" if network != theirs else ""
    ratio = f" ({network / ours - 1:+.1%})" if ours else ""
    return (
        f"{microseconds(theirs)} µs at {format_bytes(one['bytes'])} by {rule}{sums}, "
        f"{microseconds(ours)} µs by weft's{ratio}"
    )
