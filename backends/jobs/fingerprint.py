"""Fingerprint of the code that computes here: the key of stored answers, so that none is reused
after an upgrade or an edit."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from .job import digest

FOLDERS = ("dsl", "synth", "backends")
"""Whose files are the code; topologies and sketches are data, and stand in the jobs themselves."""

PACKAGES = (
    "numba",
    "numpy",
    "ortools",
    "pulp",
    "python-flint",
    "scipy",
    "z3-solver",
    "cplex",
    "gurobipy",
    "highspy",
    "mosek",
    "pyscipopt",
    "xpress",
)
"""Packages whose versions influence results; the second row are solvers that PuLP can drive."""


def fingerprint() -> str:
    """Return a digest of weft's files, Python and the solvers; takes some 50 ms, so call once."""
    return digest(
        {
            "weft": {folder: _files(f"weft.{folder}") for folder in FOLDERS},
            "packages": {name: version_of(name) for name in PACKAGES},
            "python": ".".join(platform.python_version_tuple()[:2]),
        }
    )


def source_of(module: str) -> str:
    """Return a digest of the package that a module is in: for engines of others."""
    return _files(module.partition(".")[0])


def version_of(package: str) -> str | None:
    """Return the version that is installed, if any."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _files(package: str) -> str:
    """Return a digest of all files of a package, without Python's caches."""
    spec = find_spec(package)
    if spec is None:
        return ""
    places = spec.submodule_search_locations
    if not places:
        return _hash([Path(spec.origin)] if spec.origin else [], Path("/"))
    return "".join(_hash(Path(place).rglob("*"), Path(place)) for place in places)


def _hash(paths: Iterable[Path], folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(p for p in paths if p.is_file() and "__pycache__" not in p.parts):
        name, content = str(path.relative_to(folder)).encode(), path.read_bytes()
        found.update(b"%d %s %d " % (len(name), name, len(content)))
        found.update(content)
    return found.hexdigest()
