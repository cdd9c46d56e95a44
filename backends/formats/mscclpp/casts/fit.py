"""Refusals of casts and of hardware that no plan can express, each with its reason.

A load-reduce and a multicast store are issued by one GPU, a member of the group; a group is of one
NVLink domain. Reductions on the way through switches of a network lack an operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import PUSHED, Cast, cast_name
from weft.dsl.nouns.parts import Node
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ..plan.model import FACTS

DTYPES = ("float16", "bfloat16", "float32", "int32", "uint32")
"""Types that the executor sums in a switch; fp8 needs sm_100a, and no plan launches it."""

ELSEWHERE = "nvls=off, sharp=off or --capable 'SWITCH=none' gives a schedule of transfers"


SM_OF = {"v100": 70, "a100": 80, "h100": 90, "gb200": 100}
"""Compute capability × 10 of families of machines."""

AMD = ("mi50", "mi250", "mi300x")


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs, data type and operator that a plan is for.

    ``sm``: compute capability × 10 (0: that of the family, if known); ``family``: of the machine.
    """

    sm: int = 0
    dtype: str = ""
    op: str = "sum"
    family: str = ""


def refuse_hardware(asked: Hardware, where: str) -> None:
    """Refuse GPUs, types and operators that cannot execute the casts of a plan.

    Raises:
        UserError: in words.
    """
    if asked.op != "sum":
        raise UserError(
            f"the executor of MSCCL++ always adds; a plan for {asked.op!r} does not exist",
            where=where,
            hint="op=sum, or a runtime that takes the operator",
        )
    refuse_gpus(asked.family, asked.sm, where)
    if asked.dtype and asked.dtype not in DTYPES:
        raise UserError(
            f"a switch does not sum {asked.dtype} by a plan; it sums {', '.join(DTYPES)}",
            where=where,
            hint=f"{ELSEWHERE}, which copies any type and is summed by the GPUs",
        )


def refuse_gpus(family: str, sm: int, where: str) -> None:
    """Refuse GPUs without operations on switches; ``sm`` 0: as the family has it, if known.

    Raises:
        UserError: in words.
    """
    if family in AMD and not sm:
        raise UserError(
            f"GPUs of the family {family} have no load-reduce and no multicast store",
            where=where,
            hint=ELSEWHERE,
        )
    sm = sm or SM_OF.get(family, FACTS.switch_sm)
    if sm < FACTS.switch_sm:
        raise UserError(
            f"sm_{sm} lacks load-reduce and multicast store: its kernels skip them "
            "without an error, and the result is wrong",
            where=where,
            hint=f"sm_{FACTS.switch_sm} or later (H100); for this GPU {ELSEWHERE}",
        )


def refuse_schedule(
    schedule: Schedule, nodes: Sequence[int] | None, dtype: str, op: str = "sum"
) -> None:
    """Refuse casts that no operation of a plan does; ``nodes``: the node of each rank (None: one).

    Raises:
        UserError: in words, with the cast.
    """
    where = f"{schedule.collective} on {schedule.topology.name}"
    if schedule.collective.local_reduce:
        raise UserError(
            "sums of separate contributions beside casts are not compiled",
            where=where,
            hint=ELSEWHERE,
        )
    host = nodes or [0] * schedule.topology.ranks
    for i, one in enumerate(schedule.casts):
        if why := _unsaid(one, host) or _limited(schedule, one, dtype, op):
            raise UserError(f"{cast_name(one, i)}: {why}", where=where, hint=ELSEWHERE)


def _unsaid(one: Cast, host: Sequence[int]) -> str | None:
    ends = {*one.sources, *one.destinations}
    if one.issuer == PUSHED:
        return "all its sources push; operations of plans are issued by one GPU"
    if len({host[r] for r in ends}) > 1:
        return "its ranks are on several nodes; a group is of one NVLink domain"
    if len(one.sources) > 1 and len(one.destinations) > 1:
        return "one load-reduce ends at its issuer; plans cannot do many to many in one pass"
    if one.issuer not in one.sources or one.issuer not in one.destinations:
        return f"its issuer, rank {one.issuer}, is not in the group; in plans it is a member"
    if one.reduce:
        return "it adds its sum to what the issuer holds; a load-reduce has the issuer's copy in it"
    if len(ends) < 2:
        return "a group of one; CUDA makes none of fewer than 2"
    return None


def _limited(schedule: Schedule, one: Cast, dtype: str, op: str) -> str | None:
    """Return the reason why a switch on the way forbids a cast."""
    for node in summing(schedule.topology, one):
        limits = node.limits
        wanted = (dtype,) if dtype else DTYPES  # a plan that names none is run with each
        lacking = [x for x in wanted if not limits.computes(op, x)]
        if not lacking:
            continue
        does = "sums" if op == "sum" else f"makes a {op} of"
        held = ", ".join(x for x in limits.types if limits.computes(op, x))
        told = "" if dtype else "; dtype= says the one type that the plan is for"
        if not held:
            known = ", ".join(limits.operators)
            return f"{node.name} {does} no type; its operators are {known}"
        return f"{node.name} {does} {held}, not {', '.join(lacking)}{told}"
    return None


def summing(topology: Topology, one: Cast) -> Iterator[Node]:
    """Yield the switches that sum on the way of a cast."""
    if len(one.sources) < 2:
        return
    nodes = topology.nodes
    for v in sorted({topology.links[k].dst for k in one.links} - set(range(topology.ranks))):
        if nodes[v].reduces:
            yield nodes[v]
