"""A program of library calls: collectives on parts of the ranks, one after the other.

Every rank works on a window of one buffer, at first all of it. ``reduce_scatter`` leaves each
member of a part its own piece of the window, by its place in the part; ``all_reduce`` sums windows
that are equal; ``all_gather`` joins the pieces of a part again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.schedule import Schedule

CALLS = ("reduce_scatter", "all_reduce", "all_gather")


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A collective on each of some parts of the ranks at once; every rank is in one part."""

    name: str
    parts: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        sizes = sorted({len(part) for part in self.parts})
        of = " or ".join(map(str, sizes))
        if len(self.parts) == 1:
            return f"{self.name} of all {of} ranks"
        return f"{self.name} in {len(self.parts)} groups of {of}"

    def to_list(self) -> list[Any]:
        """Return it as plain values."""
        return [self.name, [list(part) for part in self.parts]]


@dataclass(frozen=True, slots=True)
class CallProgram:
    """An allreduce of some ranks as calls of a library."""

    name: str
    ranks: int
    calls: tuple[LibraryCall, ...]

    def __repr__(self) -> str:
        return f"<CallProgram {self.name}: {', then '.join(map(str, self.calls))}>"

    @property
    def pieces(self) -> int:
        """Return the number of equal pieces into which it cuts the buffer."""
        found = 1
        for call in self.calls:
            if call.name == "reduce_scatter":
                found *= max(map(len, call.parts))
        return found


def program_of(schedule: Schedule, name: str = "") -> CallProgram:
    """Return the allreduce of a schedule as calls of the library: in hosts, and between them.

    The library sums in the switches of a host or of the network by itself where its groups are
    those that the switch reaches: reduce_scatter and allgather in the hosts, allreduce between the
    ranks of the same place in all hosts. Within one host it is one call.

    Raises:
        UserError: not an allreduce, or hosts that are not equal.
    """
    topology, collective = schedule.topology, schedule.collective
    where = f"{collective} on {topology.name}"
    if collective.kind is not Kind.ALLREDUCE:
        raise UserError(
            f"library calls on parts of the ranks are for allreduce, not {collective.kind}",
            where=where,
            hint="switches that sum and copy gain bandwidth for allreduce only",
        )
    hosts = _hosts(topology.host_of, where)
    everybody = tuple(range(topology.ranks))
    rails = tuple(zip(*hosts, strict=True))
    if len(hosts) == 1 or len(rails) == 1:
        calls: tuple[LibraryCall, ...] = (LibraryCall("all_reduce", (everybody,)),)
    else:
        calls = (
            LibraryCall("reduce_scatter", hosts),
            LibraryCall("all_reduce", rails),
            LibraryCall("all_gather", hosts),
        )
    return CallProgram(name or f"{topology.name} {collective.kind}", topology.ranks, calls)


def _hosts(host_of: Sequence[int | None], where: str) -> tuple[tuple[int, ...], ...]:
    found: dict[int | None, list[int]] = {}
    for rank, host in enumerate(host_of):
        found.setdefault(host, []).append(rank)
    sizes = sorted({len(ranks) for ranks in found.values()})
    if len(sizes) > 1 or (None in found and len(found) > 1):
        told = "some ranks have no host" if None in found else f"hosts of {sizes} ranks"
        raise UserError(
            f"{told}: ranks of the same place in all hosts make no groups",
            where=where,
            hint="a group with as many ranks of every host",
        )
    return tuple(tuple(ranks) for ranks in found.values())
