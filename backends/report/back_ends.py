"""Which back end for whom: the formats that can run a schedule on a machine, best first, and why.

One table of them all, :data:`PROGRAMS`, with what was executed when weft was written, and on which
hardware; files that runtimes load are those of :data:`~weft.dsl.nouns.runtime.LOADERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import BACKENDS
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.runtime import LOADERS, Loader
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import inner_medium, link_media

from ..deploy.settings import fitting, is_amd

UNKNOWN_GPUS = "the machine does not say which generation its GPUs are (family=)"
"""Why nothing more is known of runtimes."""

CALLS_NCCL = ("torch", "cupy", "nccl")
"""Frameworks whose calls of NCCL a library in its place answers."""


@dataclass(frozen=True, slots=True)
class BackEnd:
    """A format as a back end.

    Attributes:
        format: its name in ``--to``. ``runtime``: what runs its files, with the version meant.
        takes: the files. ``frameworks``: of programs that can call it.
        tried, hardware: what was executed here, and on what; nothing else is claimed.
    """

    format: str
    runtime: str
    takes: str
    frameworks: tuple[str, ...]
    tried: str
    hardware: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A back end on a machine: whether it fits, and one sentence why."""

    back_end: BackEnd
    fits: bool
    why: str

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "format": self.back_end.format,
            "runtime": self.back_end.runtime,
            "frameworks": list(self.back_end.frameworks),
            "fits": self.fits,
            "why": self.why,
        }


ON_CPUS = "CPUs"
ON_A_GPU = "CPUs, one H200"

PROGRAMS = (
    BackEnd(
        "torch-symm",
        "torch symmetric memory with Triton",
        "a Python file with a kernel",
        ("torch",),
        "the plan in NumPy; the kernel's text under a model of memory order; the whole file by "
        "torch 2.13 and Triton 3.9's interpreter, and on a GPU by torch 2.11; compiled, not "
        "launched, for sm_80, gfx942",
        ON_A_GPU,
    ),
    BackEnd(
        "jax",
        "JAX 0.10.2",
        "a Python file with a function for shard_map",
        ("jax",),
        "compiled by XLA and called on 2 to 32 devices of the host; 2 and 4 processes on a GPU",
        ON_A_GPU,
    ),
    BackEnd(
        "torch",
        "torch.distributed 2.13, gloo or NCCL",
        "a Python file of sends and receives",
        ("torch",),
        "processes on gloo, and on NCCL 2.28.9",
        ON_A_GPU,
    ),
    BackEnd(
        "cupy-nccl",
        "NCCL through CuPy 13.3",
        "a Python file of sends and receives",
        ("cupy", "torch"),
        "the file's code on a stand-in of NCCL; 2 to 8 ranks of NCCL 2.32.3 on a GPU",
        ON_A_GPU,
    ),
    BackEnd(
        "mpi",
        "MPI through mpi4py 4",
        "a Python file of sends and receives",
        ("mpi",),
        "processes on MPICH 5.0",
        ON_CPUS,
    ),
    BackEnd(
        "torch-calls",
        "torch.distributed 2.13, gloo or NCCL",
        "a Python file of the library's own calls on parts of the ranks",
        (),
        "four processes on gloo; NCCL not",
        ON_CPUS,
    ),
    BackEnd(
        "chakra-et",
        "ASTRA-sim, a simulator",
        "Chakra execution traces",
        (),
        "the simulator, and its rule of time, replayed here",
        ON_CPUS,
    ),
    BackEnd(
        "goal",
        "LogGOPSim (ATLAHS, spcl), a simulator",
        "GOAL, as text",
        (),
        "ATLAHS' simulator, and its rule of time, replayed here",
        ON_CPUS,
    ),
)
"""Back ends that are programs, then what no framework calls; before them stand those that load
files."""

TAKES = {
    "msccl-xml": ("MSCCL XML", "the program in NumPy; the runtime not"),
    "mscclpp-json": ("a plan in JSON", "the plan in NumPy; the runtime not"),
}
"""The files that runtimes load, and the executed ones."""


def loaded_by(loader: Loader) -> BackEnd:
    """Return a runtime that loads files as a back end."""
    takes, tried = TAKES[loader.format]
    return BackEnd(loader.format, loader.title, takes, CALLS_NCCL, tried, ON_CPUS)


def back_ends() -> tuple[BackEnd, ...]:
    """Return all back ends of this version, those that load files first."""
    programs = tuple(one for one in PROGRAMS if one.format in BACKENDS.builtin)
    return (*map(loaded_by, LOADERS.values()), *programs)


def advice(topology: Topology, framework: str | None = None) -> list[Advice]:
    """Return the back ends for a machine, those that fit first, of these the best first.

    ``framework``: one that users' programs are written in, whose back ends alone are returned;
    None: all.
    """
    found = [one for one in _judged(topology) if framework in (None, *one.back_end.frameworks)]
    return sorted(found, key=lambda one: not one.fits)


def _judged(topology: Topology) -> Iterator[Advice]:
    fit = fitting(topology)
    for loader in LOADERS.values():
        yield Advice(loaded_by(loader), loader in fit, _loader_why(topology, loader, fit))
    for one in back_ends():
        if one.format in WHY:
            yield Advice(one, *WHY[one.format](topology))


def _loader_why(topology: Topology, loader: Loader, fit: Sequence[Loader]) -> str:
    family, amd = topology.timing.family, is_amd(topology)
    if loader.built(family, amd) is False:
        return f"not for {family or 'these GPUs'}: {loader.why_not_on(family, amd)}"
    if loader not in fit:
        return UNKNOWN_GPUS
    built = f"its kernels are built for {family}"
    if loader.built(family, amd) is None:
        built = f"{UNKNOWN_GPUS}; it has kernels for most of their maker's"
    if loader.registered:
        return f"{built}; a program registers the plans"
    place = "takes NCCL's place" if loader.preload else "is the machine's own NCCL"
    return f"{built}, and it {place}: programs stay as they are"


def _symmetric(topology: Topology) -> tuple[bool, str]:
    inner = inner_medium(topology)
    if inner is None:
        return False, "the machine does not say what joins its GPUs (family=, or named links)"
    if Medium.NETWORK in link_media(topology):
        return (
            False,
            "memory is shared inside one NVLink, xGMI or PCIe domain, and this has several",
        )
    why = "all GPUs share memory, and nothing but torch is needed"
    if any(node.computes for node in topology.nodes):
        why += "; its kernel has the sums of the switch"
    if inner is Medium.PCIE:
        why += "; the libraries' own kernels are for NVLink"
    return True, why


def _jax(topology: Topology) -> tuple[bool, str]:
    from ..formats.p2p.matchings import grid_of

    if grid := grid_of(topology):
        shape = "×".join(map(str, grid))
        return True, f"the only one for TPUs, and permutations follow the axes of the {shape} grid"
    return True, "the only one for programs in JAX; any machine, at the speed of send and receive"


def _cupy(topology: Topology) -> tuple[bool, str]:
    if inner_medium(topology) is Medium.XGMI:
        return False, "CuPy's NCCL is NVIDIA's, and these GPUs are AMD's"
    return True, "any NCCL on NVIDIA's GPUs, at the speed of its send and receive"


_TORCH = "any machine that torch.distributed has, at the speed of its send and receive"

WHY: Mapping[str, Callable[[Topology], tuple[bool, str]]] = MappingProxyType(
    {
        "torch-symm": _symmetric,
        "jax": _jax,
        "torch": lambda _: (True, _TORCH),
        "cupy-nccl": _cupy,
        "mpi": lambda _: (True, "arrays on the host, by any MPI"),
    }
)
"""Tests whether a program fits a machine, with the reason."""
