"""``weft doctor``: one line per thing that weft uses, with the remedy where it is missing."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from weft.dsl.registry import ENGINES
from weft.dsl.version import version

from ..report.layout import table
from .console import Console
from .exit_codes import Exit
from .verb_list import describe

EXAMPLES = "exit code 4 if something that weft cannot do without is missing"

NEEDED = {
    "defusedxml": "defusedxml", "flint": "python-flint", "igraph": "igraph", "jinja2": "jinja2",
    "lark": "lark", "numba": "numba", "numpy": "numpy", "orjson": "orjson",
    "ortools": "ortools", "pulp": "pulp", "rich": "rich", "scipy": "scipy", "z3": "z3-solver",
}  # fmt: skip
"""Modules that weft needs, and the package that has them."""

OPTIONAL = {"mpi4py": "mpi4py", "torch": "torch", "cupy": "cupy-cuda12x"}
"""Modules that single backends need."""

TOOLS = {
    "mpirun": "an MPI such as Open MPI, for --on mpi",
    "nvidia-smi": "the NVIDIA driver, to run on GPUs",
}
"""Programs that single backends need, and what brings them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    ok: bool
    detail: str
    needed: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace, console: Console) -> int:
    """Look at everything, cheaply: nothing is imported that need not be."""
    found = list(_findings())
    bad = [f for f in found if f.needed and not f.ok]
    rows = [(_mark(f), f.name, f.detail) for f in found]
    text = table(("", "what", "which"), rows)
    console.result(text, {
        "status": "error" if bad else "ok",
        "checks": [{"name": f.name, "ok": f.ok, "detail": f.detail, "needed": f.needed}
                   for f in found],
    })  # fmt: skip
    return Exit.MISSING if bad else Exit.DONE


def _mark(finding: Finding) -> str:
    if finding.ok:
        return "ok"
    return "MISSING" if finding.needed else "absent"


def _findings() -> Iterator[Finding]:
    yield Finding("weft", True, version(), True)
    new_enough = sys.version_info >= (3, 11)
    yield Finding("python", new_enough, platform.python_version(), True)
    for module, package in NEEDED.items():
        yield _package(module, package, needed=True)
    for module, package in OPTIONAL.items():
        yield _package(module, package, needed=False)
    for tool, remedy in TOOLS.items():
        path = shutil.which(tool)
        yield Finding(tool, path is not None, path or f"not found; comes with {remedy}", False)
    for name in ENGINES.names():
        entry = describe(ENGINES, name)
        detail = "can run" if entry["available"] else str(entry["reason"])
        yield Finding(f"engine {name}", bool(entry["available"]), detail, True)


def _package(module: str, package: str, *, needed: bool) -> Finding:
    from importlib import metadata

    if find_spec(module) is None:
        return Finding(package, False, f"not installed: pip install {package}", needed)
    try:
        return Finding(package, True, metadata.version(package), needed)
    except metadata.PackageNotFoundError:
        return Finding(package, True, "installed, version unknown", needed)
