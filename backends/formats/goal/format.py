"""GOAL as a format: one text for all ranks."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.library import MOST_COPIES
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.schedule_time import simulate

from ...compile.request import ProvedArtefact, Request
from ..messages.format import MessageFormat, written_out
from ..messages.lower import ported
from ..messages.model import GraphNode, GraphNodeKind, MessageGraph
from ..recognition import is_goal
from .rule import NICS, PS, LogGop, loggop_of, loggop_us
from .text import LARGEST, goal_text, read_goal

TRAFFIC_OF_SUMS = 3
"""Times the bytes of a sum that it moves through memory: two reads and a write."""


@dataclass(frozen=True, slots=True)
class GoalFile(MessageFormat):
    """GOAL, for LogGOPSim and ATLAHS: sends of a port follow each other in the planned order.

    ``ports``: every link of a rank is a NIC of its own; otherwise a rank has one. ``local_mem_bw``:
    GB/s; a sum takes 3 · bytes ÷ this. 0: sums take no time.
    """

    name: ClassVar[str] = "goal"
    cites: ClassVar[str] = "Hoefler, Schneider and Lumsdaine, LogGOPSim, 2010"
    noun: ClassVar[str] = "GOAL file"
    suffix: ClassVar[str] = ".goal"
    rule: ClassVar[str] = "LogGOPSim's rule"
    ports: bool = True
    local_mem_bw: int = 0

    def recognizes(self, text: str, data: object) -> bool:
        """Return True if the first word that is not a comment is ``num_ranks``."""
        return is_goal(text, data)

    def graphs(self, text: str, where: str) -> dict[str, MessageGraph]:
        """Return the graph in a file."""
        return {"": read_goal(text, where)}

    def graph_us(self, graph: MessageGraph, topology: Topology | None) -> float:
        """Return the time of a graph, in µs, with L and G of a machine."""
        assert topology is not None
        return loggop_us(graph, loggop_of(graph, topology))

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
        graph = self.graph_for(request, sizes[0], self._sum_ps)
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
        notes: tuple[str, ...] = ()
        remarks: tuple[tuple[str, str], ...] = ()
        units = PS
        if isinstance(request.noun, Schedule):
            schedule = written_out(request)
            graph = ported(graph, self._turns(graph, schedule))
            rule = loggop_of(graph, schedule.topology)
            units = rule.units_per_us
            notes = (f"LogGOPSim -f FILE.bin {rule.flags}",)
            remarks = (("Run", _told(rule)),)
        else:
            graph = ported(graph, [[(0, node.tag) for node in own] for own in graph.ranks])
        return self.proved(request, goal_text(graph, units, notes), tell, remarks)

    def _sum_ps(self, size: int) -> int:
        if not self.local_mem_bw:
            return 0
        return round(TRAFFIC_OF_SUMS * size / (self.local_mem_bw * BYTES_PER_US_PER_GBPS) * 10**6)

    def _turns(self, graph: MessageGraph, schedule: Schedule) -> list[list[tuple[int, Any]]]:
        """Return for each node its NIC, and its turn there: by the start in weft's simulation.

        Of a message the tag is the transfer's place in the schedule.

        Raises:
            UserError: a rank has more NICs than a file can name.
        """
        start = simulate(schedule, graph.message_bytes).start_us.tolist()
        first = schedule.route_links[schedule.route_start[:-1]].tolist()
        last = schedule.route_links[schedule.route_start[1:] - 1].tolist()
        number = _ports(schedule.topology)
        ranks = len(graph.ranks)

        def turn(rank: int, node: GraphNode) -> tuple[int, Any]:
            if node.kind is GraphNodeKind.SUM:
                return 0, (0.0, 0)
            sends = node.kind is GraphNodeKind.SEND
            port = number[first[node.tag] if sends else last[node.tag]][not sends]
            if not self.ports:
                port = 0
            elif port >= NICS:
                raise UserError(
                    f"rank {rank} has more than {NICS} links, and a file names no more NICs",
                    where=self.name,
                    hint="--to 'goal{ports=false}' gives every rank one",
                )
            return port, (start[node.tag], (node.peer - rank) % ranks)

        return [[turn(rank, node) for node in own] for rank, own in enumerate(graph.ranks)]


def _ports(topology: Topology) -> list[tuple[int, int]]:
    """Return for each link its number among those that leave its source, and enter its end."""
    leaving, entering = [0] * len(topology.nodes), [0] * len(topology.nodes)
    found = []
    for link in topology.links:
        found.append((leaving[link.src], entering[link.dst]))
        leaving[link.src] += 1
        entering[link.dst] += 1
    return found


def _told(rule: LogGop) -> str:
    unit = "ps" if rule.units_per_us == PS else "fs"
    rest = "" if rule.even else "; some messages have another α or bandwidth: L and G are for all"
    return f"txt2bin -i FILE -o FILE.bin; LogGOPSim -f FILE.bin {rule.flags} ({unit}{rest})"
