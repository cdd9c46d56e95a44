"""Ranks of a runtime that take part in a measurement.

As a program: one rank that :mod:`..launcher` started. It is run with a runtime's name and a folder,
in which rank 0 leaves what was found.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from weft.dsl.base.errors import Missing
from weft.dsl.base.processes import end_with_owner
from weft.dsl.nouns.topology import Topology

from ...formats.p2p.embedded.mpi import Mpi
from ...formats.p2p.embedded.threads import Hub, Threads
from ...formats.p2p.embedded.torch import Torch
from ..launcher import FOUND, PLAN, RANK, leave
from ..waiting import wait_until
from .calls import WireCaller
from .gpus import measure_nccl
from .machine import numbers_of_calls, topology_of
from .model import Findings, ProbeLimits
from .probe import Probe
from .survey import survey

Tell = Callable[[str], None]

WAIT = 120.0
"""Seconds that a rank waits for another."""

STORE = "store"
"""Name of the file through which ranks of torch connect."""


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
        Missing: there is no mpi4py.
    """
    if find_spec("mpi4py") is None:
        raise Missing("MPI needs the Python package mpi4py", hint="pip install 'weft[mpi]'")
    wire, patient = Mpi(timeout=WAIT), Patient(timeout=effort.seconds)
    probe = Probe(wire, patient, np.copy, np.asarray, effort.batches)
    return survey(probe, effort, seed, tell, WireCaller(probe))


def measure_torch(effort: ProbeLimits, seed: int, tell: Tell, place: Path | None = None) -> Any:
    """Run a rank of torch.distributed (gloo), of torchrun or of a job with a folder.

    Raises:
        Missing: there is no torch.
    """
    if find_spec("torch") is None:
        raise Missing("torch is not installed", hint="pip install 'weft[torch]'")
    import torch  # here: it takes a second, and may be missing
    import torch.distributed as dist

    torch.set_num_threads(1)  # ranks share the cores
    more: dict[str, Any] = {}
    if place is not None:
        plan = json.loads((place / PLAN).read_text("utf-8"))
        more = {
            "init_method": f"file://{place / STORE}",
            "world_size": plan["ranks"],
            "rank": int(os.environ[RANK]),
        }
    dist.init_process_group("gloo", **more)
    wire = Torch(None)  # gloo sleeps while it waits: one wire for both
    probe = Probe(
        wire, wire, lambda x: torch.from_numpy(np.array(x)), lambda x: x.numpy(), effort.batches
    )
    found = survey(probe, effort, seed, tell, WireCaller(probe))
    dist.barrier()
    dist.destroy_process_group()
    return found


def measure_threads(ranks: int, effort: ProbeLimits, seed: int, tell: Tell) -> Findings:
    """Ranks that are threads of this process."""
    found: list[Findings] = []

    def main(wire: Threads) -> None:
        probe = Probe(wire, wire, np.copy, np.asarray, effort.batches)
        told = tell if not wire.rank else _silent
        one = survey(probe, effort, seed, told, WireCaller(probe))
        if one is not None:
            found.append(one)

    Hub(ranks, WAIT + effort.seconds).run(main)
    return found[0]


def _silent(_: str) -> None:
    """Only one rank tells."""


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


def serve(on: str, place: str) -> None:
    """Run one of the ranks that :mod:`..launcher` started."""
    folder = Path(place)
    end_with_owner(folder)
    plan = json.loads((folder / PLAN).read_text("utf-8"))
    effort, seed = ProbeLimits(**plan["effort"]), plan["seed"]

    def tell(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    if on == "mpi":
        found = measure_mpi(effort, seed, tell)
    elif on == "nccl":
        found = measure_nccl(effort, seed, tell)
    else:
        found = measure_torch(effort, seed, tell, folder)
    if found is not None:
        leave(folder / FOUND, written(plan["name"], found, plan["family"]))


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
