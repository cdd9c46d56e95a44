"""Run the same whole commands with two versions of weft, and tell what came out differently.

``python tests/replay/replay.py BASE`` takes the list of commands from the working tree, runs it
with the weft of BASE in a temporary git worktree and with the weft of the working tree, and
compares. What was recorded of a commit is kept, so it is not run again; with ``--only``, only the
commands asked for are run, and their record lies beside the whole one. ``tree --server`` compares
commands with what a ``weft serve`` answers. The exit code is 1 where
something differs, 0 where nothing does or all of it is accepted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import COMMANDS, Command
from comparing import changes, lines, read_accepted, report, shown
from recording import HERE, REST, Manifest, chosen, read_manifest, record

REPO = HERE.parents[1]
ACCEPTED = HERE / "accepted.toml"


def main() -> int:
    """Record both sides and compare them."""
    args = _arguments()
    keep: Path = args.keep
    before, base = keep / "again", args.base
    if args.base == "tree":  # the working tree against itself: is it deterministic?
        record_tree(before, args, stretch=args.stretch)
    else:
        base = _git("rev-parse", "--verify", f"{args.base}^{{commit}}")
        before, kept = record_of(keep, base, args.commands, again=args.again)
        if not kept:
            record_commit(base, before, args)
    after = REPO / "build" / "replay" / "tree"
    record_tree(after, args, served=args.server)
    old, new = read_manifest(before), read_manifest(after)
    assert old is not None
    assert new is not None
    if args.only:  # what is nobody's can be told only where everybody was there
        del new["commands"][REST]
    accepted = [] if base == "tree" else read_accepted(ACCEPTED, lambda since: _older(base, since))
    told = report(changes(old, new), accepted)
    if args.only:  # an accepted change may be of commands that were not run
        told.idle.clear()
    if args.bytes:
        for change in [*told.changed, *(change for change, _ in told.accepted)]:
            print(f"==== {change}", *shown(change, before, after), sep="\n")
    print(*lines(told, len(args.commands)), sep="\n")
    return 1 if told.changed else 0


def record_tree(
    results: Path, args: argparse.Namespace, stretch: int = 1, served: bool = False
) -> Manifest:
    """Record the working tree; with `served`, its server answers."""
    _say(f"running {len(args.commands)} commands with the working tree")
    _links(REPO)
    return _told(record(REPO, results, args.commands, args.jobs, stretch, served))


def record_of(
    keep: Path, commit: str, commands: tuple[Command, ...], *, again: bool = False
) -> tuple[Path, bool]:
    """Return the folder of a commit's record, and True if it holds these commands already.

    A record of some commands lies in a folder of its own: it never replaces a whole one.
    """
    whole, part = keep / commit, keep / f"{commit}-part"
    folders = (whole,) if commands == COMMANDS else (whole, part)
    names = {command.name for command in commands}
    for folder in () if again else folders:
        manifest = read_manifest(folder)
        if manifest is not None and names <= manifest["commands"].keys():
            return folder, True
    return folders[-1], False


def record_commit(commit: str, results: Path, args: argparse.Namespace) -> Manifest:
    """Record a commit so that later runs find it."""
    _say(f"running {len(args.commands)} commands with {commit[:12]}")
    with _worktree(commit) as checkout:
        _links(checkout)
        return _told(record(checkout, results, args.commands, args.jobs))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "base", nargs="?", default="HEAD", help="a commit, or tree: the working tree twice"
    )
    parser.add_argument("--jobs", type=int, default=2, help="commands at a time (default: 2)")
    parser.add_argument(
        "--server", action="store_true", help="the working tree's commands go to its weft serve"
    )
    parser.add_argument("--bytes", action="store_true", help="show what is different")
    parser.add_argument("--only", default="", help="names, or parts of names; with what they need")
    parser.add_argument("--again", action="store_true", help="run a commit that was kept again")
    parser.add_argument(
        "--keep",
        type=Path,
        default=REPO / "build" / "replay",
        help="where records of commits are kept, for several worktrees if you like",
    )
    parser.add_argument(
        "--stretch",
        type=int,
        default=1,
        help="with tree: the first run's budgets are so many times longer",
    )
    args = parser.parse_args()
    args.commands = chosen(args.only)
    if not args.commands:
        parser.error(f"no command is called like {args.only!r}")
    return args


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    """A checkout of a commit that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="weft-base-") as folder:
        place = Path(folder).resolve() / "checkout"
        _git("worktree", "add", "--quiet", "--detach", str(place), commit)
        try:
            yield place
        finally:
            _git("worktree", "remove", "--force", str(place))


def _links(checkout: Path) -> None:
    subprocess.run([sys.executable, "hatch_build.py"], cwd=checkout, check=True)


def _older(commit: str, than: str) -> bool:
    """Tell if a commit is another one or one of its ancestors."""
    words = ["git", "-C", str(REPO), "merge-base", "--is-ancestor", commit, than]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _git(*words: str) -> str:
    ended = subprocess.run(["git", "-C", str(REPO), *words], capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"git {' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def _told(manifest: Manifest) -> Manifest:
    _say(f"took {manifest['wall_s']} s, {manifest['cpu_s']} s of processors")
    return manifest


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
