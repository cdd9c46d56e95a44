"""Map the top-level folders to one import name.

A wheel gets its root package here; an editable install gets links under `build/link`, because
type checkers and `pkgutil` follow files but do not run import hooks. As a script
(`python hatch_build.py`) this file only makes the links, so that a checkout that was never
installed, such as a second git worktree, works with `PYTHONPATH=build/link`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

FOLDERS = ("dsl", "synth", "backends", "topologies", "sketches")
ROOT_FILES = {"backends/_root.py": "__init__.py", "backends/py.typed": "py.typed"}


def make_links(repo: Path) -> Path:
    """Make `build/link/weft` point at the folders of `repo`; return `build/link`."""
    package = repo / "build" / "link" / "weft"
    package.mkdir(parents=True, exist_ok=True)
    for source, name in {**{folder: folder for folder in FOLDERS}, **ROOT_FILES}.items():
        link = package / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path("../../..") / source)
    return package.parent


if TYPE_CHECKING:
    from hatchling.builders.config import BuilderConfig
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    _Hook = BuildHookInterface[BuilderConfig]
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface as _Hook
    except ImportError:  # as a script on a bare Python, only make_links is wanted
        _Hook = object


class OneRoot(_Hook):
    """Give the wheel its root files, or the editable install its links."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run before hatchling collects files; `version` is "standard" or "editable"."""
        if version == "standard":
            build_data["force_include"] |= {
                source: f"weft/{name}" for source, name in ROOT_FILES.items()
            }
        else:
            make_links(Path(self.root))


if __name__ == "__main__":
    make_links(Path(__file__).resolve().parent)
