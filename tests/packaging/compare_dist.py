"""Compare the file names in a wheel and an sdist with the files that git tracks.

    python tests/packaging/compare_dist.py [--untracked] DIST_FOLDER

A build backend that follows links, or that was told to take too little, loses files without a
word; this says which. With `--untracked`, files that git does not know yet (and does not
ignore) are expected too: right while one is writing, wrong for a release.
"""

import argparse
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_WHEEL = ("dsl", "synth", "backends", "topologies", "sketches")
# The build hook moves these, so the wheel does not hold them a second time.
MOVED = {"backends/_root.py": "weft/__init__.py", "backends/py.typed": "weft/py.typed"}
ALWAYS_IN_SDIST = {"pyproject.toml", "README.md", "LICENSE", ".gitignore"}
MADE_BY_BUILD = {"PKG-INFO"}
MACHINE_CODE = "weft/machine_code/"


def tree(*, untracked: bool) -> set[str]:
    """The repository's files, by their paths from the root."""
    command = ["git", "ls-files", "-z", "--cached"]
    if untracked:
        command += ["--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


def sdist_names(files: set[str]) -> set[str]:
    """What the sdist should hold."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    taken = config["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    inside = {n for n in files if any(n == top or n.startswith(f"{top}/") for top in taken)}
    return inside | ALWAYS_IN_SDIST & files | MADE_BY_BUILD


def wheel_names(files: set[str]) -> set[str]:
    """What the wheel should hold, without its metadata."""
    return {MOVED.get(n, f"weft/{n}") for n in files if n.split("/")[0] in IN_WHEEL}


def names_in_wheel(path: Path) -> set[str]:
    """Return the files of the wheel, without its metadata and machine code."""
    with zipfile.ZipFile(path) as archive:
        found = {n for n in archive.namelist() if not n.split("/")[0].endswith(".dist-info")}
    return {n for n in found if not n.startswith(MACHINE_CODE)}


def names_in_sdist(path: Path) -> set[str]:
    """What the sdist holds, without its one leading folder."""
    with tarfile.open(path) as archive:
        return {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}


def differences(what: str, found: set[str], expected: set[str]) -> Iterator[str]:
    """One line per name that is missing or too much."""
    yield from (f"{what} lacks {name}" for name in sorted(expected - found))
    yield from (f"{what} has {name}, not in the tree" for name in sorted(found - expected))


def only(folder: Path, pattern: str) -> Path:
    """The one file in a folder that fits."""
    paths = sorted(folder.glob(pattern))
    if len(paths) != 1:
        raise SystemExit(f"{folder} should hold one {pattern}, and holds {len(paths)}")
    return paths[0]


def main() -> int:
    """Compare, print every difference, and return 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--untracked", action="store_true")
    options = parser.parse_args()
    files = tree(untracked=options.untracked)
    wheel = names_in_wheel(only(options.folder, "*.whl"))
    sdist = names_in_sdist(only(options.folder, "*.tar.gz"))
    lines = [
        *differences("the wheel", wheel, wheel_names(files)),
        *differences("the sdist", sdist, sdist_names(files)),
    ]
    print("\n".join(lines) or f"wheel ({len(wheel)} files) and sdist ({len(sdist)}) are the tree")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
