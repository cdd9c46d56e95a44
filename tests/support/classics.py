"""Classic algorithms as programs, and the machines on which their formulas are exact."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.backends.compile.pipeline import DEFAULT_PASSES
from weft.backends.execute.execute import run_program
from weft.dsl.catalogue import topology
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.classic.flat import classic_algorithm
from weft.synth.engines.classic.model import Flat
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL

SIZES = {Protocol.SIMPLE: 500_000, Protocol.LL: 32_000, Protocol.LL128: 500_000}
"""Messages that one turn of the runtime's loop takes: the formulas know of no second one."""

NO_FUSION = tuple(one for one in DEFAULT_PASSES if one.name != "fuse")


@dataclass(frozen=True)
class Case:
    """One program of one algorithm."""

    one: Flat
    ranks: int
    in_place: bool = False
    instances: int = 1
    protocol: Protocol = Protocol.SIMPLE
    chunks: int = 1

    def program(self) -> Program:
        """Compiled for MSCCL, by default."""
        made = classic_algorithm(
            self.one.name,
            self.one.kind,
            self.ranks,
            in_place=self.in_place,
            chunks=self.chunks,
            instances=self.instances,
            protocol=self.protocol,
        )
        return lower_algorithm(made, CompileOptions(in_place=self.in_place))


def wrong(program: Program, interleavings: int) -> str:
    """What the proof or the interpreter finds, or nothing."""
    found = errors(check_program(program))
    if found:
        return str(found[0])
    done = run_program(program, dtypes=("int32",), interleavings=interleavings)
    return "" if done.ok else done.detail


def off_by(case: Case, alpha: str, program: Program | None = None) -> float:
    """Simulated time ÷ formula - 1, on the machine it is made for, with this α per cable."""
    machine = planes(topology(f"{case.one.topology(case.ranks)},alpha={alpha}"), case.instances)
    size = SIZES[case.protocol]
    found = simulate_program(program or case.program(), machine, size, MSCCL).time_us
    first = machine.links[0]
    hops = 1 if machine.nodes[first.dst].stores else 2
    bandwidth = float(first.bandwidth) * case.instances
    efficiency = float(MSCCL.protocol(case.protocol).efficiency)
    cost = case.one.cost(case.ranks, case.chunks)
    return found / cost.us(size, hops * float(first.latency), bandwidth * efficiency) - 1


def planes(machine: Topology, count: int) -> Topology:
    """The machine with every cable, or the hub, ``count`` times, each that much narrower.

    One plane for each instance: what instances share on one cable is pipelined, and the formulas
    know of no pipeline but their own.
    """
    if count == 1:
        return machine
    hubs = machine.nodes[machine.ranks :]
    links = []
    for link in machine.links:
        narrow = replace(link, bandwidth=Fraction(link.bandwidth) / count)
        for plane in range(count):
            ends = [
                end if end < machine.ranks else end + plane * len(hubs)
                for end in (link.src, link.dst)
            ]
            links.append(replace(narrow, src=ends[0], dst=ends[1]))
    nodes = list(machine.nodes[: machine.ranks])
    for plane in range(count):
        nodes += [replace(hub, name=f"{hub.name}{plane}") for hub in hubs]
    return Topology(f"{count} x {machine.name}", tuple(nodes), tuple(links))


def numbers(one: Flat, most: int = 17) -> Iterator[int]:
    """The numbers of ranks on which an algorithm is defined."""
    return (n for n in range(2, most + 1) if not one.defined(n))
