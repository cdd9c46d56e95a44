"""The public grade cases that weft answers so far: machine, collective, sizes, limits.

Cases of the engine ``exact`` are graded on its whole frontier; the others are solved anew for each
size, with the objective time, by the engine named (``portfolio``, where the case asks nothing
special) at the default effort, within ``seconds`` of CPU time each.

Sizes are M in bytes (decimal), limits µs, bounds as the cases state them: T/M in ps per byte and
the α bound in µs. ``peers`` asks for a schedule in which no GPU has more send peers than that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.synth.base.engine import Budget
from weft.synth.time.schedule_tables import CostModel

KB, MB, GB = 10**3, 10**6, 10**9
GIB = 1 << 30


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
    engine: str = "exact"
    seconds: float = 60
    effort: float = Budget().effort
    cost: CostModel = field(default_factory=CostModel)
    note: str = ""


def two_shot(size: int) -> float:
    """G12's limit: 1.02 times the better of one-shot and two-shot allreduce."""
    return 1.02 * min(0.7 + 7 * size / 300e3, 1.4 + 1.75 * size / 300e3)


ANY = "portfolio"
A100 = "dgx-a100:"
PAIR, FOUR, DGX2S = "ndv2:nodes=2,fabric=direct", "ndv2:nodes=4", "dgx2:nodes=2"
MESH = "mesh:5x5,bw=50GiB/s,alpha=0.5us"
CUBE = "torus:3x3x3,bw=50GiB/s,alpha=0.5us"
TACOS = CostModel(alpha_occupies=True)
"""α is part of the occupancy, as TACOS counts."""

CASES = (
    Case("G01", "dgx1", "allgather", ((KB, 1.5), (GB, 5900)), 1.4, 35 / 6, ((2, 3, 2), (3, 7, 6))),
    Case("G02", "dgx1", "alltoall", ((MB, 14.1), (GB, 13400)), 1.4, 40 / 3, ((2, 8, 3),)),
    Case("G03", "dgx1", "allreduce", ((KB, 1.6), (256 * MB, 3080)), 1.4, 35 / 3, ((6, 14, 48),)),
    Case("G04", "dgx1", "broadcast", ((KB, 1.45), (GB, 6800)), 1.4, 20 / 3, engine=ANY),
    *(
        Case("G01-3", "dgx1", what, limits, 1.4, ps, sketch="dgx1_plain", engine=ANY, note="sketch")
        for what, limits, ps in (
            ("allgather", ((KB, 1.5), (GB, 5900)), 35 / 6),
            ("alltoall", ((MB, 14.1), (GB, 13400)), 40 / 3),
            ("allreduce", ((KB, 1.6), (256 * MB, 3080)), 35 / 3),
        )
    ),
    Case(
        "G05",
        PAIR,
        "allgather",
        ((GB, 43750 + 4.1),),
        4.1,
        40,
        sketch="ndv2_whole",
        engine=ANY,
        note="unsplit",
    ),
    Case(
        "G05",
        PAIR,
        "allgather",
        ((KB, 4.3), (MB, 44.2), (GB, 40800)),
        4.1,
        40,
        sketch="ndv2_gates",
        engine=ANY,
    ),
    Case(
        "G06",
        PAIR,
        "alltoall",
        ((KB, 4.6), (GB, 321000)),
        4.1,
        320,
        sketch="ndv2_gates",
        engine=ANY,
    ),
    Case("G07", PAIR, "allreduce", ((KB, 6), (GB, 81500)), 4.1, 80, sketch="ndv2_sums", engine=ANY),
    Case(
        "G08",
        FOUR,
        "allgather",
        ((GB, 61875 + 5.4),),
        5.4,
        60,
        sketch="ndv2_whole",
        engine=ANY,
        note="unsplit",
    ),
    Case(
        "G08",
        FOUR,
        "allgather",
        ((KB, 5.6), (MB, 67), (GB, 61000)),
        5.4,
        60,
        sketch="ndv2_gates",
        engine=ANY,
    ),
    Case("G08", FOUR, "alltoall", ((GB, 485000),), 5.4, 480, sketch="ndv2_gates", engine=ANY),
    Case("G08", FOUR, "allreduce", ((GB, 122500),), 5.4, 120, sketch="ndv2_gates", engine=ANY),
    Case(
        "G09",
        DGX2S,
        "allgather",
        ((KB, 4.006), (256 * KB, 5.376), (MB, 9.5), (GB, 7750)),
        4,
        7.75,
        sketch="dgx2_pairs",
        engine=ANY,
        seconds=120,
    ),
    Case(
        "G10",
        DGX2S,
        "alltoall",
        ((KB, 4.06), (MB, 84), (GB, 80500)),
        4,
        80,
        sketch="dgx2_anybody",
        engine=ANY,
        seconds=120,
    ),
    Case("G11", DGX2S, "allreduce", ((GB, 15200),), 4, 14.762, sketch="dgx2_pairs", engine=ANY),
    Case(
        "G12",
        "dgx-a100",
        "allreduce",
        (*((s, two_shot(s)) for s in (KB, 8 * KB, 64 * KB, MB)), (256 * MB, 1510)),
        0.7,
        35 / 6,
    ),
    Case("G18", "dgx2", "allgather", ((KB, 0.72), (GB, 7520)), 0.7, 7.5),
    Case("G18", "dgx2", "alltoall", ((KB, 0.72), (GB, 7520)), 0.7, 7.5),
    Case("G18", "dgx2", "allreduce", ((KB, 0.85), (GB, 15100)), 0.7, 15),
    Case("G18", "dgx2", "allgather", ((GB, 7600),), 0.7, 7.5, sketch="dgx2_four_peers"),
    Case(
        "G13",
        A100 + "nodes=2,fabric=planes:2",
        "allgather",
        ((GB, 2900),),
        3.2,
        75 / 26,
        engine=ANY,
    ),
    Case(
        "G13",
        A100 + "nodes=2,fabric=planes:2",
        "allgather",
        ((GB, 2950),),
        3.2,
        75 / 26,
        engine="packing{trees=1}",
        note="1 tree per root",
    ),
    Case("G14", A100 + "nodes=4", "allgather", ((KB, 3.6), (GB, 3800)), 3.2, 3.75, engine=ANY),
    Case("G14", A100 + "nodes=4", "allreduce", ((GB, 7600),), 3.2, 7.5, engine=ANY),
    Case("G15", A100 + "nodes=4,nics=8,8,4,2", "allgather", ((GB, 15300),), 3.9, 15, engine=ANY),
    Case("G15", A100 + "nodes=4,nics=8,8,4,2", "alltoall", ((GB, 123000),), 3.9, 120, engine=ANY),
    Case("G15", A100 + "nodes=4,nics=8,8,4,2", "allreduce", ((GB, 21000),), 3.9, 20, engine=ANY),
    Case("G16", A100 + "nodes=16", "alltoall", ((128 * MB, 4900),), 3.2, 37.5, engine=ANY),
    Case("G17", "dgx-h100:nodes=8", "allgather", ((GB, 2230),), 3.2, 2.1875, engine=ANY),
    Case("G17", "dgx-h100:nodes=8", "reduce_scatter", ((GB, 2230),), 3.2, 2.1875, engine=ANY),
    Case(
        "G19",
        "dgx-h100:nodes=128",
        "allreduce",
        ((GB, 5150),),
        3.2,
        4.9609375,
        engine=ANY,
        seconds=600,
    ),
    Case("G20", "mi250", "allgather", ((GB, 2960),), 3.5, 35 / 12, engine=ANY),
    Case(
        "G20",
        "mi250",
        "allgather",
        ((GB, 3760),),
        3.5,
        35 / 12,
        engine="packing{trees=1}",
        note="1 tree per root",
    ),
    Case(
        "G21",
        "mi250:nodes=2",
        "allgather",
        ((GB, 2900),),
        2.5,
        1875 / 664,
        engine="packing{trees=16}",
        note="at most 16 trees per root",
    ),
    # The case's bound of 5.2937 is the contraction of boxes; ours, of pairs of GCDs, is higher.
    Case("G21", "mi250:nodes=2", "allreduce", ((GB, 5800),), 2.5, 1875 / 332, engine=ANY),
    Case("G22", "mi300x:dead=0-1", "allreduce", ((GB, 4150),), 1.4, 4.0509259, engine=ANY),
    Case("G22", "mi300x:dead=0-1", "alltoall", ((GB, 2330),), 1.4, 2.2786459, engine=ANY),
    Case("G23", "topo_8p6l_4nic.xml:nodes=4", "allgather", ((GB, 8000),), 3.7, 7.8125, engine=ANY),
    Case(
        "G24",
        MESH,
        "allgather",
        ((GIB, 9606),),
        4,
        8.9406965,
        engine="greedy{chunks=1}",
        cost=TACOS,
        note="unsplit, α occupies",
    ),
    Case(
        "G24",
        MESH,
        "allgather",
        ((GIB, 9604),),
        4,
        8.9406965,
        engine="greedy{chunks=1}",
        note="unsplit",
    ),
    Case("G24", MESH, "allreduce", ((GIB, 12600),), 4, 11.175871, engine=ANY),
    Case(
        "G25",
        CUBE,
        "allgather",
        ((GIB, 3706.2),),
        1.5,
        2.9894305,
        engine="greedy{chunks=1}",
        note="1 chunk per rank",
    ),
    Case("G25", CUBE, "allgather", ((GIB, 3280),), 1.5, 2.9894305, engine=ANY),
    Case(
        "G26",
        "torus:8x8,bw=50GB/s",
        "alltoall",
        ((KB, 6), (GB, 20400)),
        5.6,
        20,
        engine=ANY,
        seconds=600,
    ),
    Case(
        "G26",
        "torus:8x8,bw=50GB/s",
        "allreduce",
        ((GB, 10100),),
        5.6,
        9.84375,
        engine=ANY,
        seconds=600,
    ),
    Case(
        "G27",
        "hypercube:6",
        "allreduce",
        ((KB, 4.7), (GB, 13500)),
        4.2,
        13.125,
        engine=ANY,
        seconds=600,
    ),
    Case("G27", "hypercube:6", "alltoall", ((GB, 20500),), 4.2, 20, engine=ANY, seconds=600),
    Case("G28", "fat-tree:k=4,oversub=2", "alltoall", ((64 * MB, 4600),), 3, 70, engine=ANY),
    Case("G28", "fat-tree:k=4,oversub=2", "allgather", ((64 * MB, 2460),), 3, 37.5, engine=ANY),
    Case(
        "G29",
        "dragonfly:p=2,a=4,h=2",
        "allgather",
        ((64 * MB, 2600),),
        2.5,
        39.4444445,
        engine=ANY,
        seconds=600,
    ),
    Case("G30", "ring:8,bw=50GB/s,dead=7-0", "allgather", ((GB, 17800),), 4.9, 17.5, engine=ANY),
    Case("G30", "ring:8,bw=50GB/s,dead=7-0", "allreduce", ((GB, 20600),), 4.9, 20, engine=ANY),
)
