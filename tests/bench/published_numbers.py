"""What TE-CCL and TACCL are said to reach on NDv2 and DGX-2: times in µs, solver times in seconds.

Sources: *paper*: Table 8 of TE-CCL (Liu et al., SIGCOMM 2024), both systems, NDv2 ×2, solved with
Gurobi on 80 cores; its three settings are the epoch of the best quality, the longest epoch, and a
search that stops within 30 % of its bound. *outputs*: the schedules in TE-CCL's public repository,
the best of all epochs for each size; of their solver times only the range is kept. Rows of DGX-2
with early stops are not used: their chunks are twice as large.

TE-CCL takes GPU 0 of two NDv2 for a switch, and so solves a problem of 15 GPUs; its sizes still
count 16. That is certain for the outputs. In the paper the allgather has the same times as the
outputs, and the alltoall takes longer than any of 15 GPUs has to.
"""

from dataclasses import dataclass

KB, MB, GB = 10**3, 10**6, 10**9

SIZES = (GB, 256 * MB, 64 * MB, 16 * MB, 4 * MB, MB, 256 * KB, 64 * KB, 16 * KB, 4 * KB, KB)
"""Of Table 8, in bytes: the output of a GPU (alltoall: its input)."""

FEW = (GB, 16 * MB, MB, 256 * KB, 64 * KB, 16 * KB, KB)
"""Of the outputs."""


@dataclass(frozen=True)
class Rival:
    """One system's times, and its solver's: one for each size, or the range of all of them."""

    name: str
    times_us: tuple[float | None, ...]
    seconds: tuple[float | None, ...] = ()
    range_s: tuple[float, float] | None = None

    def least_s(self, place: int) -> float:
        """The solver's seconds for one size, or the least of their range."""
        return self.range_s[0] if self.range_s else self.seconds[place] or 0.0


@dataclass(frozen=True)
class Published:
    """The rivals on one machine and collective.

    ``machine`` and ``chassis`` as in TE-CCL's input; ``shipped``: with GPU 0 a switch, as there.
    ``sketch`` is the one of ours that says what theirs does.
    """

    machine: str
    collective: str
    sizes: tuple[int, ...]
    rivals: tuple[Rival, ...]
    chassis: int = 2
    shipped: bool = False
    sketch: str = ""

    def __post_init__(self) -> None:
        for rival in self.rivals:
            counts = {len(rival.times_us), len(rival.seconds or self.sizes)}
            if counts != {len(self.sizes)}:
                raise ValueError(f"{rival.name}: a number for each size is needed")


_GATHERED_BY_TACCL = Rival(
    "TACCL",
    (53766.7, 12494.6, 3133.2, None, 216.5, 62.15, 25.26, 13.08, 12.68, 11.85, 10.16),
    (7.01, 6.56, 8.27, None, 8.37, 62.65, 11.17, 3.66, 6.34, 4.30, 3.02),
)
_EXCHANGED_BY_TACCL = Rival(
    "TACCL",
    (320049.4, 81964.2, 20532, 5164.4, 1324.2, 359, 115.72, 50.34, 35.76, 32.16, 36.8),
    (1214.69, 1217.56, 1220.6, 1213.9, 1214.51, 1213.52, 1221.78, 860.88, 86.03, 31.14, 27.66),
)
_GATHERED = Rival(
    "TE-CCL",
    (43750, 11200, 2800, 700, 190, 48.75, 14.72, 6.08, 4.44, 4.24, 4.135),
    (7201.05, 7214.16, 7209.46, 7208.70, 152.60, 160.10, 59.55, 27.61, 18.80, 12.26, 50.28),
)
_GATHERED_FAST = Rival(
    "long epochs",
    (50000, 12804.1, 3201.02, 800.06, 200, 70, 19.2, 7.68, 4.8, 4.24, 4.14),
    (0.94, 0.77, 0.78, 0.77, 0.77, 1.04, 1.09, 1.74, 3.35, 21.56, 89.07),
)
_GATHERED_EARLY = Rival(
    "early stop",
    (47500, 12163.89, 3920.31, 980.02, 240, 63.75, 16.96, 6.32, 4.44, 4.24, 4.135),
    (2.66, 2.37, 2.45, 2.42, 2.40, 4.32, 2.83, 3.94, 12.98, 10.17, 42.94),
)
_EXCHANGED = Rival(
    "TE-CCL",
    (320235.81, 82000, 20495.09, 5123.77, 1296.25, 325.28, 85.52, 23.3, 7.27, 4.64, 4.24),
    (336.50, 307.33, 339.92, 280.82, 165.63, 189.47, 218.50, 161.99, 182.08, 69.58, 196.72),
)
_EXCHANGED_FAST = Rival(
    "long epochs",
    (325000, 83226.63, 20806.66, 5200.42, 1300.03, 340, 88.32, 24.32, 7.6, 4.5, 4.235),
    (14.82, 14.36, 11.01, 9.96, 11.81, 10.85, 9.97, 10.46, 8.83, 20.90, 276.47),
)


def _outputs(low: float, high: float, *times: float) -> tuple[Rival, ...]:
    return (Rival("TE-CCL", times, range_s=(low, high)),)


PUBLISHED = (
    Published(
        "NDv2",
        "allgather",
        SIZES,
        (_GATHERED, _GATHERED_EARLY, _GATHERED_FAST, _GATHERED_BY_TACCL),
        sketch="ndv2_gates",
    ),
    Published(
        "NDv2",
        "alltoall",
        SIZES,
        (_EXCHANGED, _EXCHANGED_FAST, _EXCHANGED_BY_TACCL),
        sketch="ndv2_gates",
    ),
    Published(
        "NDv2",
        "allgather",
        FEW,
        _outputs(4, 773, 43750, 700, 48.75, 14.72, 6.08, 4.44, 4.135),
        shipped=True,
    ),
    Published(
        "NDv2",
        "alltoall",
        FEW,
        _outputs(460, 1540, 283750, 4540, 290, 77.12, 21.68, 7.94, 4.239),
        shipped=True,
    ),
    Published(
        "NDv2",
        "allgather",
        FEW,
        _outputs(140, 30900, 65000, 1040, 69.38, 20.96, 8.32, 5.81, 5.45),
        chassis=4,
        sketch="ndv2_gates",
    ),
    Published(
        "DGX2",
        "allgather",
        FEW,
        _outputs(12, 18400, 7750, 124, 10.75, 5.376, 4.32, 4.084, 4.006),
        sketch="dgx2_pairs",
    ),
    Published(
        "DGX2",
        "alltoall",
        FEW,
        _outputs(500, 1590, 80500, 1292, 84.25, 24, 8.464, 4.704, 4.06),
        sketch="dgx2_anybody",
    ),
)
