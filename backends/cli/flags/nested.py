"""Flags of the verbs that have verbs of their own: topo, sketch, workload, cache."""

from __future__ import annotations

from typing import ClassVar

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import parse_bytes

from . import shared
from .shared import CapableFlags, Flags, NestedVerbs, ProblemFlags, Ranks, WorkloadFlags, flag
from .values import some_of

SHAPE_KINDS = ("torus", "twisted", "circulant")
"""Values of ``topo search --kinds``."""

# --- topo -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopoListFlags(Flags):
    HELP: ClassVar[str] = "all names of the catalogue"


@dataclass(frozen=True)
class TopoShowFlags(CapableFlags):
    HELP: ClassVar[str] = "one topology in words and numbers"

    topology: str = flag(metavar="TOPO", help="a catalogue name, a file, or -")
    group: Ranks | None = shared.of_ranks("--group", help="only these ranks")
    structure: bool = flag(
        "--structure",
        action="store_true",
        help="also what splits it (bridges, single nodes, the least cut), and the machines of the "
        "catalogue that it is, or is a part of",
    )


@dataclass(frozen=True)
class TopoDiffFlags(Flags):
    HELP: ClassVar[str] = "compare two machines: the same up to names, or which links differ"

    before: str = flag(metavar="A", help="a catalogue name, a file, or -")
    after: str = flag(metavar="B", help="another one")


@dataclass(frozen=True)
class TopoImportFlags(CapableFlags):
    HELP: ClassVar[str] = (
        "turn the text of nvidia-smi, rocm-smi or amd-smi, NCCL or RCCL XML, GraphML, GML, files "
        "of TACCL, TE-CCL, msccl-tools or ASTRA-sim, or measurements into ours"
    )
    DESCRIPTION: ClassVar[str | None] = "Options of the importer follow the path: topo.xml:nodes=4"

    topology: str = flag(metavar="FILE", help="the file, or - (format by content)")
    without: tuple[str, ...] = flag(
        "--without",
        metavar="NIC,NIC",
        action="append",
        help="NICs to leave out, by their names in the file: mlx5_4,mlx5_5",
    )
    output: str = shared.output("a file (default: -)", default="-")
    force: bool = shared.force()


@dataclass(frozen=True)
class TopoCalibrateFlags(Flags):
    HELP: ClassVar[str] = "fit the runtime model of a machine to nccl-tests output"
    DESCRIPTION: ClassVar[str | None] = (
        "Numbers that the texts lack keep their default, with the reason. α and bandwidths of "
        "schedules stay as they are: only times of programs change."
    )

    topology: str = flag(metavar="TOPO", help="a catalogue name, a file, or -")
    files: tuple[str, ...] = flag(
        metavar="FILE",
        nargs="+",
        help="output of nccl-tests or rccl-tests (text, JSON or CSV), one run in each",
    )
    output: str | None = shared.output("a file for the machine with the fitted numbers")
    page: str | None = flag(
        "--page",
        metavar="FILE",
        writes=True,
        help="an HTML page: measured, default and fitted times",
    )
    force: bool = shared.force("overwrite the files")
    group: Ranks | None = shared.of_ranks("--group", help="the ranks of TOPO that ran: 0..3,8..11")
    collective: str | None = flag(
        "--collective",
        "-c",
        metavar="KIND",
        help="the collective, where the text does not name its test",
    )
    runtime: str | None = flag(
        "--runtime", choices=("nccl", "rccl"), help="whose kernels ran (default: by the machine)"
    )


@dataclass(frozen=True)
class TopoSearchFlags(WorkloadFlags):
    HELP: ClassVar[str] = "which torus, twisted torus or circulant serves a workload best"
    DESCRIPTION: ClassVar[str | None] = (
        "Shapes of --ranks GPUs with --degree cables each, ranked by the least time in which all "
        "collectives of the workload are served together. Rank i is GPU i."
    )

    degree: int = shared.count("--degree", 64, "cables at each GPU", required=True)
    workload: str | None = flag(
        "-w", "--workload", metavar="WORKLOAD", help="a file of a workload, or -"
    )
    collective: str = flag(
        "-c",
        "--collective",
        metavar="KIND",
        default="alltoall",
        help="one collective of all ranks, instead of a workload (default: alltoall)",
    )
    size: int = flag(
        "--size",
        metavar="SIZE",
        parse=parse_bytes,
        default=10**9,
        help="message size M of the collective (default: 1GB)",
    )
    bw: str = flag(
        "--bw", metavar="BW", default="25GB/s", help="of a cable, each way (default: 25GB/s)"
    )
    kinds: tuple[str, ...] = flag(
        "--kinds",
        metavar="KIND,…",
        parse=some_of(SHAPE_KINDS),
        default=SHAPE_KINDS,
        help=f"shapes to try, of {', '.join(SHAPE_KINDS)} (default: all)",
    )
    top: int = shared.count("--top", 1000, "shapes that are shown (default: 10)", 10)


TOPO = NestedVerbs(
    """examples:
  weft topo list
  weft topo show dgx-a100:nodes=2
  weft topo show measured.json --structure
  weft topo diff dgx1 measured.json
  weft topo search --ranks 64 --degree 4 -c alltoall
  nvidia-smi topo -m | weft topo import - -o my-box.json
  weft topo calibrate my-box.json all_reduce.txt all_gather.txt -o measured.json""",
    {
        "list": TopoListFlags,
        "show": TopoShowFlags,
        "diff": TopoDiffFlags,
        "import": TopoImportFlags,
        "calibrate": TopoCalibrateFlags,
        "search": TopoSearchFlags,
    },
)

# --- sketch ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SketchListFlags(Flags):
    HELP: ClassVar[str] = "all sketches that come with weft"


@dataclass(frozen=True)
class SketchShowFlags(Flags):
    HELP: ClassVar[str] = "the text of a sketch"

    sketch: str = flag(metavar="SKETCH", help="a name, a file, or -")


@dataclass(frozen=True)
class SketchFmtFlags(Flags):
    HELP: ClassVar[str] = "write a sketch in its canonical form"

    sketch: str = flag(metavar="FILE", help="the file, changed in place; - to stdout")
    check: bool = flag(
        "--check", action="store_true", help="change nothing; exit code 1 if it is not canonical"
    )


@dataclass(frozen=True)
class SketchImportFlags(Flags):
    HELP: ClassVar[str] = "turn a TACCL sketch or a TE-CCL input into ours"
    DESCRIPTION: ClassVar[str | None] = "Differences of meaning are noted on stderr."

    sketch: str = flag(metavar="FILE", help="TACCL's sketch or TE-CCL's input, or -")
    topology: str | None = shared.topology(
        help="TACCL's topology JSON, or any machine that weft knows (TE-CCL: that of its input)"
    )
    output: str | None = shared.output("a file (default: to stdout)")
    machine: str | None = flag(
        "--machine", metavar="OUT", writes=True, help="write the sketch's machine too, as JSON"
    )
    nic_split: bool = flag(
        "--nic-split",
        action="store_true",
        help="divide each NIC among its connections for good, as TACCL does (in "
        "the machine of --machine)",
    )
    force: bool = shared.force("overwrite the files")


@dataclass(frozen=True)
class SketchDeriveFlags(ProblemFlags):
    HELP: ClassVar[str] = "sketches that weft derives from a machine, raced, as text to edit"
    DESCRIPTION: ClassVar[str | None] = (
        "Phases over hosts and rails, relays at shared NICs, chains, wide links, moves: each that "
        "fits is raced. The quickest comes first, the others follow as comments, with their times."
    )

    size: int = flag(
        "--size",
        metavar="SIZE",
        parse=parse_bytes,
        default=1 << 20,
        help="message size of the race (default: 1MiB)",
    )
    effort: float = shared.effort("the race of each sketch", 2.0)
    time: float | None = shared.cut_off("each race")
    seed: int = shared.seed("of the races")
    output: str | None = shared.output("a file (default: to stdout)")
    force: bool = shared.force("overwrite the file")


SKETCH = NestedVerbs(
    """examples:
  weft sketch list
  weft sketch show dgx2_relay
  weft sketch fmt my.sketch            formats the file in place; - for a filter
  weft sketch fmt --check my.sketch    exit code 1 if it is not canonical
  weft sketch import sk.json -t topo.json -o sk.sketch --machine machine.json
  weft sketch derive -t ndv2:nodes=2 -c allgather -o mine.sketch""",
    {
        "list": SketchListFlags,
        "show": SketchShowFlags,
        "fmt": SketchFmtFlags,
        "import": SketchImportFlags,
        "derive": SketchDeriveFlags,
    },
)

# --- workload -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkloadShowFlags(WorkloadFlags):
    HELP: ClassVar[str] = "what a workload asks for: per class, in bytes and groups"

    workload: str = flag(metavar="WORKLOAD", help="a file, a folder of traces, or -")
    topology: str | None = shared.topology(help="check that this machine has its ranks")


WORKLOAD = NestedVerbs(
    """examples:
  weft workload show step.json
  weft workload show step.csv -t dgx-h100:nodes=8 --json
  weft workload show traces/ --from chakra --groups groups.json
  weft workload show megatron.toml""",
    {"show": WorkloadShowFlags},
)

# --- cache ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CacheListFlags(Flags):
    HELP: ClassVar[str] = "how many answers there are"

    cache: str | None = flag(
        "--cache", metavar="DIR", help="default: $WEFT_CACHE, or weft in the user's cache"
    )


@dataclass(frozen=True)
class CacheClearFlags(CacheListFlags):
    HELP: ClassVar[str] = "remove answers"

    stale: bool = flag(
        "--stale", action="store_true", help="only those that this weft does not use"
    )


CACHE = NestedVerbs(
    """examples:
  weft cache list
  weft cache clear --stale             answers of other versions of weft or of its solvers""",
    {"list": CacheListFlags, "clear": CacheClearFlags},
)
