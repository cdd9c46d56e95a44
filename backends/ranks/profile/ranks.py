"""Ranks of a runtime that take part in a measurement.

As a program: one rank that :mod:`..launcher` started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from weft.dsl.base.errors import Missing
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.topology import Topology

from ...formats.p2p.embedded.mpi import Mpi
from ...formats.p2p.embedded.nccl import Connection, Nccl, joined
from ...formats.p2p.embedded.threads import Hub, Threads
from ...formats.p2p.embedded.torch import Torch
from ..joined import world_of
from ..launcher import take_part
from ..mpi import wait_until
from ..nccl import connected, shares_gpus
from .calls import WireCaller
from .machine import numbers_of_calls, topology_of
from .model import CallTime, Findings, ProbeLimits
from .probe import Probe, Tell
from .survey import survey

WAIT = 120.0
"""Seconds that a rank waits for another."""


class Patient(Mpi):
    """MPI for long waits: the longer it takes, the longer the naps, so that cores are free."""

    def _wait(self, begun: list[Any], states: list[Any], ways: list[str], here: str) -> None:
        late = f"{here}: still waiting for messages {', '.join(ways)}"
        wait_until(
            partial(self.mpi.Request.Testall, begun, states), WAIT + (self.timeout or 0.0), late
        )


def measure_mpi(effort: ProbeLimits, seed: int, tell: Tell) -> Findings | None:
    """Run a rank of MPI; return the findings on rank 0.

    Raises:
        Missing: mpi4py is not installed.
    """
    if find_spec("mpi4py") is None:
        raise Missing("MPI needs the Python package mpi4py", hint="pip install 'weft[mpi]'")
    wire, patient = Mpi(timeout=WAIT), Patient(timeout=effort.seconds)
    probe = Probe(wire, patient, np.copy, np.asarray, effort.batches)
    return survey(probe, effort, seed, tell, WireCaller(probe))


def measure_torch(
    effort: ProbeLimits, seed: int, tell: Tell, place: Path | None = None, ranks: int = -1
) -> Findings | None:
    """Run a rank of torch.distributed (gloo), of torchrun or of a job with a folder.

    Raises:
        Missing: torch is not installed.
    """
    if find_spec("torch") is None:
        raise Missing("torch is not installed", hint="pip install 'weft[torch]'")
    world: Any = world_of("torch", 1800.0, place, ranks, gpus=False)  # torch's own time-out
    wire = Torch(None)  # gloo sleeps while it waits: one wire for both
    probe = Probe(
        wire,
        wire,
        lambda x: world.torch.from_numpy(np.array(x)),
        lambda x: x.numpy(),
        effort.batches,
    )
    found = survey(probe, effort, seed, tell, WireCaller(probe))
    world.close()
    return found


def measure_threads(ranks: int, effort: ProbeLimits, seed: int, tell: Tell) -> Findings:
    """Ranks that are threads of this process."""
    found: list[Findings] = []

    def main(wire: Threads) -> None:
        probe = Probe(wire, wire, np.copy, np.asarray, effort.batches)
        told = tell if not wire.rank else lambda _: None
        one = survey(probe, effort, seed, told, WireCaller(probe))
        if one is not None:
            found.append(one)

    Hub(ranks, WAIT + effort.seconds).run(main)
    return found[0]


ON_ONE_GPU = "ranks share a GPU: these are times of their turns on it, and say nothing of links"
"""Remark on a machine that was measured so."""


class TimedNccl(Nccl):
    """NCCL, whose clock stands still until the stream is empty."""

    def clock(self) -> float:
        """Seconds, when all that was begun is done; sums that wait for company are launched."""
        self.flush()
        return super().clock()


def probe_of(connection: Connection, effort: ProbeLimits) -> Probe:
    """The probe of a rank, on its current GPU and stream. NCCL waits on the GPU: one transport
    serves short and long waits."""
    import cupy

    wire = TimedNccl(connection, cupy.cuda.get_current_stream(), "float32")
    return Probe(wire, wire, cupy.asarray, cupy.asnumpy, effort.batches)


class NcclCaller(WireCaller):
    """NCCL's own allreduce over a ring, by protocol.

    A communicator reads protocol and algorithm from the environment when it is made.
    """

    protocols: Sequence[str] = tuple(map(str, Protocol))
    one_channel = True

    def ring(self, inside: Sequence[int], asked: CallTime) -> Callable[[], None]:
        """Return the call of a communicator of these ranks."""
        import cupy
        from cupy.cuda import nccl

        fresh = () if self.probe.rank else nccl.get_unique_id()  # the name of a communicator
        name = self.probe.share([int(x) for x in fresh])
        if self.probe.rank not in inside:
            return lambda: None
        most = {"NCCL_MAX_NCHANNELS": str(asked.channels)} if asked.channels else {}
        with _environment(NCCL_PROTO=asked.protocol, NCCL_ALGO="Ring", **most):
            comm = joined(len(inside), name, inside.index(self.probe.rank))
        count = asked.bytes // 4
        send, recv = (cupy.zeros(count, "float32") for _ in range(2))
        wire: Any = self.probe.wire
        stream, kind = wire.stream.ptr, nccl.NCCL_FLOAT32
        ends = send.data.ptr, recv.data.ptr

        def reduce(_: object = (send, recv)) -> None:
            """The default keeps the arrays alive."""
            comm.allReduce(*ends, count, kind, nccl.NCCL_SUM, stream)

        return reduce

    def empty(self) -> Callable[[], None]:
        """Return the launch of a kernel that copies a number."""
        import cupy

        wire: Any = self.probe.wire
        out, number = (cupy.zeros(1, "float32") for _ in range(2))

        def launch() -> None:
            wire.copy(out, number)
            wire.flush()

        return launch


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def measure_nccl(effort: ProbeLimits, seed: int, tell: Tell) -> Findings | None:
    """Run a rank that MPI started; return the findings on rank 0.

    Raises:
        Missing: as :func:`connected`.
    """
    probe = probe_of(connected(), effort)
    if not shares_gpus():
        return survey(probe, effort, seed, tell, NcclCaller(probe))
    found = survey(probe, effort, seed, tell, None)
    return found and replace(found, remarks=(ON_ONE_GPU, *found.remarks))


def written(name: str, found: Findings, family: str = "") -> dict[str, Any]:
    """Return the topology and what is known of it, as JSON.

    Raises:
        UnknownName: no such family.
    """
    topology: Topology = topology_of(name, found, family)
    classes = [
        {"directions": [list(flow) for flow in one.flows], **asdict(one.line)}
        for one in found.classes
    ]
    return {
        "topology": topology.to_json(),
        "classes": classes,
        "noise": found.noise,
        "groups": [list(group) for group in found.groups],
        "sweeps": list(found.sweeps),
        "sum_GBps": None if found.sum_rate is None else round(found.sum_rate / 1000, 3),
        "shared": [{"name": s.name, "GBps": s.rate / 1000, "error": s.error} for s in found.shared],
        "overhead_us": round(found.overhead, 3),
        "remarks": list(found.remarks),
        "calls": [asdict(one) for one in found.calls],
        "timing": [
            {"key": one.key, "value": one.value, "worst": one.worst, "of": one.of}
            for one in numbers_of_calls(found, family).told
        ],
    }


def serve(on: str, plan: Any, folder: Path, tell: Tell) -> dict[str, Any] | None:
    """Run one of the ranks that :mod:`..launcher` started."""
    effort, seed = ProbeLimits(**plan["effort"]), plan["seed"]
    if on == "torch":
        found = measure_torch(effort, seed, tell, folder, plan["ranks"])
    else:
        found = (measure_mpi if on == "mpi" else measure_nccl)(effort, seed, tell)
    return None if found is None else written(plan["name"], found, plan["family"])


if __name__ == "__main__":
    take_part(serve)
