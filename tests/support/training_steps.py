"""Training steps as workloads of loads and computations, with their known times."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Operations = list[dict[str, Any]]


def file(operations: Operations, **more: Any) -> dict[str, Any]:
    """The object of a workload file."""
    return {"weft": "workload", "schema": 1, "operations": operations, **more}


def load(name: str, us: int, *after: str, resource: str = "nic") -> dict[str, Any]:
    return {"name": name, "kind": "load", "us": {resource: us}, "after": list(after)}


def compute(name: str, us: int, *after: str) -> dict[str, Any]:
    return {"name": name, "kind": "compute", "us": us, "after": list(after)}


def moe(layers: int, attention: int, experts: int, alltoall: int, gradients: int) -> Operations:
    """Backward of MoE layers; gradients are not waited for."""
    found: Operations = []
    before: tuple[str, ...] = ()
    for at in range(layers):
        found += _moe_layer(f"{at}", before, attention, experts, alltoall)
        before = (f"a{at}",)
        found.append(load(f"g{at}", gradients, *before))
    return found


def _moe_layer(
    at: str, before: Sequence[str], attention: int, experts: int, alltoall: int
) -> Operations:
    return [
        load(f"c{at}", alltoall, *before),
        compute(f"e{at}", experts, f"c{at}"),
        load(f"d{at}", alltoall, f"e{at}"),
        compute(f"a{at}", attention, f"d{at}"),
    ]


def micro_batches(
    layers: int, attention: int, experts: int, alltoall: int, gradients: int
) -> Operations:
    """Two micro-batches in turns; gradients wait for both."""
    found: Operations = []
    for batch in range(2):
        before: tuple[str, ...] = ()
        for at in range(layers):
            found += _moe_layer(f"{at}.{batch}", before, attention, experts, alltoall)
            before = (f"a{at}.{batch}",)
    return found + [load(f"g{at}", gradients, f"a{at}.0", f"a{at}.1") for at in range(layers)]


def data_parallel(backward: int, forward: int, sums: Sequence[int]) -> Operations:
    """Backward of layers, the last first, each with its allreduce, then the next forward."""
    found: Operations = []
    before: tuple[str, ...] = ()
    for at in reversed(range(len(sums))):
        found.append(compute(f"b{at}", backward, *before))
        before = (f"b{at}",)
        found.append(load(f"g{at}", sums[at], *before))
    for at in range(len(sums)):
        found.append(compute(f"f{at}", forward, *before, f"g{at}"))
        before = (f"f{at}",)
    return found


def fsdp(layers: int, forward: int, backward: int, gather: int, scatter: int) -> Operations:
    """Gathers of weights, forward and backward; a gather may run two computations ahead."""
    steps = [(f"f{at}", forward) for at in range(layers)]
    steps += [(f"b{at}", backward) for at in reversed(range(layers))]
    found: Operations = []
    for at, (name, us) in enumerate(steps):
        ahead = (steps[at - 2][0],) if at > 1 else ()
        before = (steps[at - 1][0],) if at else ()
        found.append(load(f"gather {name}", gather, *ahead))
        found.append(compute(name, us, f"gather {name}", *before))
        if name.startswith("b"):
            found.append(load(f"scatter {name}", scatter, name))
    return found


def two_fabrics(layers: int, step: int, tensor: int, gradients: int) -> Operations:
    """Tensor parallelism on NVLink, waited for, and gradients on NICs, not waited for."""
    found: Operations = []
    before: tuple[str, ...] = ()
    for at in range(layers):
        found.append(compute(f"b{at}", step, *before))
        found.append(load(f"t{at}", tensor, f"b{at}", resource="nvlink"))
        found.append(load(f"g{at}", gradients, f"b{at}"))
        before = (f"t{at}",)
    return found


@dataclass(frozen=True)
class KnownStep:
    """A step and its times in µs: bound, best, fair sharing, one queue, nothing overlapped."""

    name: str
    operations: Operations
    bound: int
    best: int
    fair: int
    queue: int
    apart: int | None = None


KNOWN = (
    KnownStep("MoE 960/1000", moe(4, 1500, 1500, 960, 1000), 20680, 20680, 23560, 23680, 23680),
    KnownStep("MoE 960/2000", moe(4, 1000, 1000, 960, 2000), 17680, 17680, 20680, 23680, 23680),
    KnownStep("MoE 500", moe(4, 500, 500, 960, 2000), 16680, 16680, 18180, 19680, 19680),
    KnownStep("MoE 240/4000", moe(4, 1500, 1500, 240, 4000), 20920, 20920, 20920, 29920, 29920),
    KnownStep("MoE 32 layers", moe(32, 1000, 1000, 960, 2000), 127440, 127440, 158440, 189440),
    KnownStep(
        "two micro-batches", micro_batches(3, 1000, 1000, 900, 1500), 15500, 15700, 17700, 17000
    ),
    KnownStep("data parallel", data_parallel(1000, 500, [1500] * 4), 7500, 7500, 9000, 9000),
    KnownStep(
        "data parallel, last layer big",
        data_parallel(1000, 500, [500, 500, 1000, 4000]),
        7500,
        7500,
        7500,
        9000,
    ),
    KnownStep("FSDP 4", fsdp(4, 1000, 2000, 1200, 1200), 15200, 15200, 17200, 16000),
    # The bound of one resource between two times is 14,400; what must run before counts too.
    KnownStep("FSDP 6", fsdp(6, 500, 1000, 800, 800), 14600, 14600, 15600, 14800),
    KnownStep("TP and gradients", two_fabrics(4, 1000, 600, 1500), 7300, 7300, 7300, 9400),
)
