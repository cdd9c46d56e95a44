"""Map the top-level folders to one import name, and compile the loops that a wheel brings.

A wheel gets its root package here; an editable install gets links under `build/link`, because
type checkers and `pkgutil` follow files but do not run import hooks. As a script
(`python hatch_build.py`) this file only makes the links, so that a checkout that was never
installed, such as a second git worktree, works with `PYTHONPATH=build/link`.

Loops are compiled for a generic processor, some 70 CPU seconds, and linked into libraries that
serve the version of Python that they were made with. Without a C compiler the wheel has what numba
keeps of its work, which serves one version of numba, too; with others, weft compiles again. With
`WEFT_MACHINE_CODE=0` the wheel has none, and is for every platform.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

FOLDERS = ("dsl", "synth", "backends", "topologies", "sketches")
ROOT_FILES = {"backends/_root.py": "__init__.py", "backends/py.typed": "py.typed"}


KERNELS = ("numba>=0.61", "numpy>=2.0", "setuptools>=64")
"""Packages without which kernels cannot be compiled and linked: numba imports setuptools for it."""


def make_links(repo: Path) -> Path:
    """Make `build/link/weft` point at the folders of `repo`; return `build/link`."""
    return _links(repo / "build" / "link", Path("../../.."))


def _links(folder: Path, repo: Path) -> Path:
    package = folder / "weft"
    package.mkdir(parents=True, exist_ok=True)
    for source, name in {**{folder: folder for folder in FOLDERS}, **ROOT_FILES}.items():
        link = package / name
        link.unlink(missing_ok=True)
        link.symlink_to(repo / source)
    return folder


def compile_kernels(repo: Path, folder: Path) -> Path:
    """Compile all loops of `repo`, with `folder` for links to it; return where the files are.

    Raises:
        CalledProcessError: it did not work, for instance because numba is not installed.
    """
    links = _links(folder, repo.resolve())
    places = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    code = "from weft.backends.kernels import compile_all as make; print(make() or 'linked')"
    # pip's isolated builds name the packages that they installed for it by PYTHONPATH.
    path = os.pathsep.join(filter(None, (str(links), places.get("PYTHONPATH"))))
    subprocess.run([sys.executable, "-c", code], env={**places, "PYTHONPATH": path}, check=True)
    return links / "weft" / "machine_code"


if TYPE_CHECKING:
    from hatchling.builders.config import BuilderConfig
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    _Hook = BuildHookInterface[BuilderConfig]
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface as _Hook
    except ImportError:  # as a script on a bare Python, only make_links is wanted
        _Hook = object


def _with_kernels() -> bool:
    return os.environ.get("WEFT_MACHINE_CODE", "1") != "0"


class OneRoot(_Hook):
    """Give the wheel its root files and machine code, or the editable install its links."""

    _made: Path | None = None

    def dependencies(self) -> list[str]:
        """Return what the environment of a build needs besides hatchling."""
        return list(KERNELS) if _with_kernels() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run before hatchling collects files; `version` is "standard" or "editable"."""
        if version == "standard":
            build_data["force_include"] |= {
                source: f"weft/{name}" for source, name in ROOT_FILES.items()
            }
            if _with_kernels():
                self._add_kernels(build_data)
        else:
            make_links(Path(self.root))

    def _add_kernels(self, build_data: dict[str, Any]) -> None:
        self._made = Path(tempfile.mkdtemp(prefix="weft-build-"))
        self.app.display_info("compiling loops (WEFT_MACHINE_CODE=0 leaves them out)")
        try:
            code = compile_kernels(Path(self.root), self._made)
        except subprocess.CalledProcessError:
            self.app.display_warning("the wheel has no machine code: its loops do not compile here")
            return
        build_data["force_include"][str(code)] = "weft/machine_code"
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Run after the wheel is written."""
        if self._made is not None:
            shutil.rmtree(self._made)


if __name__ == "__main__":
    make_links(Path(__file__).resolve().parent)
