"""GOAL as a format: one text for all ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import microseconds
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.library import MOST_COPIES
from weft.dsl.nouns.topology import Topology

from ...compile.request import ProvedArtefact, Request
from ..messages.format import MOST_TIMED, MessageFormat
from ..messages.lower import in_turns, ported
from ..messages.model import MessageGraph
from ..recognition import is_goal
from .rule import LARGEST, NICS, PS, LogGop, loggop_of, loggop_us, nearest
from .text import goal_text, read_goal

TRAFFIC_OF_SUMS = 3
"""Times the bytes of a sum that it moves through memory: two reads and a write."""


@dataclass(frozen=True, slots=True)
class GoalFile(MessageFormat):
    """GOAL, for LogGOPSim and ATLAHS: sends of a port follow each other in the planned order.

    ``ports``: every link of a rank is a NIC of its own; otherwise a rank has one. ``local_mem_bw``:
    GB/s; a sum takes 3 · bytes ÷ this. 0: sums take no time. ``scaled``: where links are unequal,
    messages on slower ones get more bytes, as there is one G; otherwise bytes are bytes, for
    simulators with a network of their own (htsim).
    """

    name: ClassVar[str] = "goal"
    cites: ClassVar[str] = "Hoefler, Schneider and Lumsdaine, LogGOPSim, 2010"
    noun: ClassVar[str] = "GOAL file"
    suffix: ClassVar[str] = ".goal"
    rule: ClassVar[str] = "ATLAHS' rule"
    ports: bool = True
    local_mem_bw: int = 0
    scaled: bool = True

    def recognizes(self, text: str, data: object) -> bool:
        """Return True if the first word that is not a comment is ``num_ranks``."""
        return is_goal(text, data)

    def graphs(self, text: str, where: str) -> dict[str, MessageGraph]:
        """Return the graph in a file."""
        return {"": read_goal(text, where)}

    def graph_us(self, graph: MessageGraph, topology: Topology | None) -> float:
        """Return the time of a graph, in µs, with L, G and scaled bytes for a machine.

        Raises:
            UserError: the file's bytes are scaled for another machine.
        """
        assert topology is not None
        if graph.flags is None:
            rule, graph = loggop_of(graph, topology)
            return loggop_us(graph, rule)
        latency, gap, units, digest = graph.flags
        if digest != topology.digest():
            raise UserError(
                f"the file's L, G and bytes are for the links of another machine than "
                f"{topology.name}",
                where=graph.name or None,
                hint="-t with the schedule's own machine, or compile it again for this one",
            )
        return loggop_us(graph, LogGop(latency, gap, units))

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        """Write and prove the file.

        Raises:
            UserError: not one message size, or too large messages. CheckFailed: what was made is
                wrong.
        """
        if self.local_mem_bw < 0:
            raise UserError(f"local_mem_bw is {self.local_mem_bw}", where=self.name)
        sizes = self.sizes_of(request)
        if len(sizes) > 1:
            raise UserError("a GOAL file is for one message size", where="--size")
        tell("messages")
        planned = self.planned(request, sizes[0], self._sum_ps)
        graph = planned.graph
        notes: tuple[str, ...] = ()
        remarks: tuple[tuple[str, str], ...] = ()
        units = PS
        if planned.schedule is None:
            graph = ported(graph, [[(0, node.tag) for node in own] for own in graph.ranks])
        else:
            graph = in_turns(graph, planned.schedule, planned.start_us, not self.ports)
            topology = planned.schedule.topology
            rule, scaled = loggop_of(graph, topology)
            units = rule.units_per_us
            if not rule.exact and len(planned.schedule) <= MOST_TIMED:
                rule = nearest(scaled, rule, planned.time_us)
            if self.scaled and not rule.exact:
                graph = replace(scaled, flags=(rule.latency, rule.gap, units, topology.digest()))
            notes = (f"LogGOPSim -f FILE.bin {rule.flags}",)
            remarks = (("Run", self._told(rule)),)
        self._require_fit(graph, request)
        return self.proved(request, goal_text(graph, units, notes), [planned], tell, remarks)

    def _require_fit(self, graph: MessageGraph, request: Request) -> None:
        """Refuse what the numbers of the file cannot say.

        Raises:
            UserError: a message has too many bytes, or a rank too many links.
        """
        largest = max((node.bytes for _, _, node in graph.nodes()), default=0)
        if largest > LARGEST:
            pieces = max(1, request.segments, getattr(request.noun, "segments", 1))
            pieces *= -(-largest // LARGEST)
            cut = f"--segments {pieces} cuts every chunk into messages that fit"
            raise UserError(
                f"a message of {largest} bytes: LogGOPSim's have 31 bits",
                where=request.where or None,
                hint=cut if pieces <= MOST_COPIES else "a smaller --size: no --segments is enough",
            )
        for rank, _, node in graph.nodes():
            if node.port >= NICS:
                raise UserError(
                    f"rank {rank} has more than {NICS} links, and a file names no more NICs",
                    where=self.name,
                    hint="--to 'goal{ports=false}' gives every rank one",
                )

    def _sum_ps(self, size: int) -> int:
        if not self.local_mem_bw:
            return 0
        return round(TRAFFIC_OF_SUMS * size / (self.local_mem_bw * BYTES_PER_US_PER_GBPS) * 10**6)

    def _told(self, rule: LogGop) -> str:
        unit = "ps" if rule.units_per_us == PS else "fs"
        told = f"txt2bin -i FILE -o FILE.bin; LogGOPSim -f FILE.bin {rule.flags} ({unit}"
        if not rule.alike and self.scaled:
            told += "; bytes are scaled, since links are unequal and G is one for all"
        elif not rule.alike:
            told += "; links are unequal, bytes are not scaled: too quick with this G"
        if rule.alpha_us[0] < rule.alpha_us[1]:
            least, most = map(microseconds, rule.alpha_us)
            told += f"; L is one for all, the α of routes are {least} to {most} µs"
        return f"{told}; spcl's version works one port of a rank at a time, and takes longer)"
