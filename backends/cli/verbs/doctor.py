"""``weft doctor``: one line per dependency of weft, with the remedy where it is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from weft import __version__
from weft.dsl.base.errors import UserError, an
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import BACKENDS, ENGINES, IMPORTERS, PASSES, VERBS
from weft.dsl.base.tables import table

from ...ranks.starters import mpiexec
from ...report.report import shown
from ...serve.client import Unserved, connect
from ...serve.wire import VARIABLE, default_address
from ..flags.machines import DoctorFlags
from ..frame.defaults import defaults_words
from ..frame.parser import VERBS as OURS
from ..output.console import Console, Exit
from .list import describe

if TYPE_CHECKING:
    from ...jobs.executor import Step

_SAME = "defusedxml jinja2 lark networkx numba numpy orjson ortools pulp rich scipy"
NEEDED = dict(sorted({"flint": "python-flint", **{x: x for x in _SAME.split()}}.items()))
"""Modules that weft needs, and the package that has them."""

OPTIONAL = {
    "mpi4py": ("mpi4py", "weft[mpi]", "weft run --on mpi, and the files of compile --to mpi"),
    "torch": ("torch", "weft[torch]", "weft run --on torch, and the files of compile --to torch"),
    "jax": ("jax", "weft[jax]", "weft run --on jax, and the files of compile --to jax"),
    "distributed": ("distributed", "weft[dask]", "weft sweep --cluster, on all its hosts"),
    "cupy": ("cupy-cuda12x", "weft[cuda]", "programs on CuPy arrays, with NCCL"),
    "z3": ("z3-solver", "weft[z3]", "-e 'exact{solver=z3}', the paper's encoding"),
}
"""Modules that single backends need: their package, the extra that has it, its use."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the report."""

    name: str
    ok: bool
    detail: str
    needed: bool


def run(args: DoctorFlags, console: Console) -> int:
    if args.machine is not None:
        return _advise(args, console)
    if args.framework is not None:
        raise UserError(
            "--framework chooses among the back ends of a machine",
            where="--framework",
            hint="name it: --machine TOPO",
        )
    return _warm(console) if args.warm else _report(console)


def _advise(args: DoctorFlags, console: Console) -> int:
    # Loaded here: the report must do without NumPy.
    from ...report.back_ends import advice
    from ..inputs.machines import read_topology

    assert args.machine is not None
    topology = read_topology(args.machine)
    found = advice(topology, args.framework)
    best = next((one for one in found if one.fits), None)
    rows = [
        {**one.to_json(), "mark": "best" if one is best else "fits" if one.fits else "no"}
        for one in found
    ]
    console.result(
        shown(rows, ":mark", "--to:format", "runtime:runtime", "why:why"),
        {
            "status": "ok",
            "topology": topology.name,
            "framework": args.framework,
            "back_ends": [one.to_json() for one in found],
        },
    )
    return Exit.DONE


def _warm(console: Console) -> int:
    """Make the machine code of all kernels that lack it, on all cores."""
    # Loaded here: these load all kernels, without which the report must do.
    from weft.dsl.base.linked import writable

    from ...kernels import LINKED, CannotLink, kernels, lacking, runtime

    folder = writable()
    if folder is None:
        raise UserError(
            "machine code cannot be kept: no folder can be written",
            hint="set NUMBA_CACHE_DIR to a folder that can",
        )
    names = kernels()
    try:
        if places := lacking():
            parts = [LINKED[place].__name__.partition(".")[2] for place in places]
            with runtime() as objects:
                asked = [[place, str(objects), str(folder)] for place in places]
                _each("link_one", asked, parts, console)
        text, linked = f"{len(names)} kernels are compiled, in {len(LINKED)} libraries", True
    except CannotLink as error:
        console.warn(f"loops cannot be linked here, so that numba loads them: {error}")
        _each("compile_one", range(len(names)), names, console)
        text, linked = f"{len(names)} kernels are compiled", False
    data = {"status": "ok", "kernels": len(names), "linked": linked, "folder": str(folder)}
    console.result(text, data)
    return Exit.DONE


def _each(function: str, asked: Sequence[Any], names: Sequence[str], console: Console) -> None:
    """Run a function of :mod:`weft.backends.kernels` for every question, on all cores."""
    from ...jobs.local import local

    def tell(step: Step) -> None:
        console.say("Kernel", f"{step.ended} of {len(asked)}  {names[step.place]}")

    with local() as pool:
        pool.map(f"weft.backends.kernels:{function}", asked, progress=tell)


def _report(console: Console) -> int:
    found = list(_findings())
    bad = [f for f in found if f.needed and not f.ok]
    rows = [
        ("ok" if f.ok else "MISSING" if f.needed else "absent", f.name, f.detail) for f in found
    ]
    checks = [{"name": f.name, "ok": f.ok, "detail": f.detail, "needed": f.needed} for f in found]
    text = table(("", "what", "which"), rows)
    console.result(text, {"status": "error" if bad else "ok", "checks": checks})
    return Exit.MISSING if bad else Exit.DONE


def _findings() -> Iterator[Diagnosis]:
    yield Diagnosis("weft", True, __version__, True)
    new_enough = sys.version_info >= (3, 11)
    yield Diagnosis("python", new_enough, platform.python_version(), True)
    for module, package in NEEDED.items():
        yield _package(module, package, package, "")
    for module, (package, extra, use) in OPTIONAL.items():
        yield _package(module, package, f"'{extra}'", use)
    yield Diagnosis("defaults", True, defaults_words(), False)
    yield from _machine_code()
    yield _server()
    yield from _runtimes()
    for name in ENGINES.names():
        entry = describe(ENGINES, name)
        detail = "can run" if entry["available"] else str(entry["reason"])
        yield Diagnosis(f"engine {name}", entry["available"], detail, name in ENGINES.builtin)
    yield from _plugins()


def _machine_code() -> Iterator[Diagnosis]:
    """Yield a finding about compiled kernels, if all is installed that is needed to look."""
    try:
        from ...kernels import missing
    except ImportError:
        return
    lacking, compiled, linked = missing()
    total = lacking + compiled + linked
    detail = f"{total - lacking} of {total} kernels are compiled, {linked} of them in libraries"
    later = "; the others when first used, or now by 'weft doctor --warm'" if lacking else ""
    yield Diagnosis("machine code", not lacking, detail + later, False)


def _server() -> Diagnosis:
    """Return a finding about the server that ``--server default`` or the environment names."""
    named = os.environ.get(VARIABLE, "default")
    address = default_address() if named in ("", "default") else named
    try:
        sock, pid = connect(address)
    except (Unserved, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        detail = f"none at {address} ({reason}); 'weft serve' starts one, for quicker answers"
        return Diagnosis("server", False, detail, False)
    sock.close()
    return Diagnosis("server", True, f"at {address}, process {pid}", False)


def _plugins() -> Iterator[Diagnosis]:
    """Yield a finding for each plug-in but the engines, which are listed with ours."""
    for registry in (PASSES, BACKENDS, IMPORTERS, VERBS):
        for name, offered in registry.offers().items():
            if name in OURS if registry is VERBS else name in registry.builtin:
                for one in offered:
                    detail = f"{one} is not used: weft has {an(one.kind)} of that name"
                    yield Diagnosis(f"{one.kind} {name}", False, detail, False)
                continue
            entry = describe(registry, name)
            detail = f"of {offered[0].origin}" if entry["available"] else str(entry["reason"])
            yield Diagnosis(f"{registry.kind} {name}", entry["available"], detail, False)


def _runtimes() -> Iterator[Diagnosis]:
    """Yield the findings outside Python's packages: the MPI itself, NVIDIA's driver, NCCL."""
    starter, driver = mpiexec(), shutil.which("nvidia-smi")
    wheels = [f"nvidia-nccl-cu{major}" for major in (13, 12)]
    nccl = next((f"{name} {found}" for name in wheels if (found := _version(name))), None)
    lacks = {
        "mpiexec": "no MPI: pip install 'weft[mpi]' brings MPICH; for weft run --on mpi",
        "nvidia-smi": "not found: comes with NVIDIA's driver; to run on GPUs",
        "nccl": "no wheel of NCCL: pip install nvidia-nccl-cu12, or torch's CUDA build, brings it; "
        "for messages between GPUs",
    }
    for name, found in (("mpiexec", starter), ("nvidia-smi", driver), ("nccl", nccl)):
        yield Diagnosis(name, found is not None, found or lacks[name], False)


def _package(module: str, package: str, install: str, use: str) -> Diagnosis:
    """``use``: the verbs or formats that need it; empty if all of weft does."""
    allows = f"; for {use}" if use else ""
    if find_spec(module) is None:
        return Diagnosis(package, False, f"not installed: pip install {install}{allows}", not use)
    if (version := _version(package)) is None:  # CuPy is in a package for each CUDA
        from importlib import metadata

        package = next(iter(metadata.packages_distributions().get(module, ())), package)
        version = _version(package) or "installed, version unknown"
    return Diagnosis(package, True, version, not use)


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
