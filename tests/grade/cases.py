"""The public grade cases that weft answers so far: machine, collective, sizes, limits.

Sizes are M in bytes (decimal), limits µs, bounds as the cases state them: T/M in ps per byte and
the α bound in µs. ``peers`` asks for a schedule in which no GPU has more send peers than that.
"""

from __future__ import annotations

from dataclasses import dataclass

KB, MB, GB = 10**3, 10**6, 10**9


@dataclass(frozen=True)
class Case:
    """One line of the table of grade cases."""

    name: str
    topology: str
    collective: str
    limits: tuple[tuple[int, float], ...]
    alpha_us: float
    ps_per_byte: float
    points: tuple[tuple[int, int, int], ...] = ()
    sketch: str = ""


def two_shot(size: int) -> float:
    """G12's limit: 1.02 times the better of one-shot and two-shot allreduce."""
    return 1.02 * min(0.7 + 7 * size / 300e3, 1.4 + 1.75 * size / 300e3)


CASES = (
    Case("G01", "dgx1", "allgather", ((KB, 1.5), (GB, 5900)), 1.4, 35 / 6, ((2, 3, 2), (3, 7, 6))),
    Case("G02", "dgx1", "alltoall", ((MB, 14.1), (GB, 13400)), 1.4, 40 / 3, ((2, 8, 3),)),
    Case("G03", "dgx1", "allreduce", ((KB, 1.6), (256 * MB, 3080)), 1.4, 35 / 3, ((6, 14, 48),)),
    Case(
        "G12", "dgx-a100", "allreduce",
        (*((s, two_shot(s)) for s in (KB, 8 * KB, 64 * KB, MB)), (256 * MB, 1510)), 0.7, 35 / 6,
    ),
    Case("G18", "dgx2", "allgather", ((KB, 0.72), (GB, 7520)), 0.7, 7.5),
    Case("G18", "dgx2", "alltoall", ((KB, 0.72), (GB, 7520)), 0.7, 7.5),
    Case("G18", "dgx2", "allreduce", ((KB, 0.85), (GB, 15100)), 0.7, 15),
    Case("G18", "dgx2", "allgather", ((GB, 7600),), 0.7, 7.5, sketch="dgx2_four_peers"),
)  # fmt: skip
