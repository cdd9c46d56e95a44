"""Mutate the product itself: which of its tests see a dropped statement or a flipped comparison?

The same seed chooses the same statements as long as their text stays, wherever they lie, so that
two suites can be compared on one product: ``--tests REV`` takes the tests of another revision,
``--write FILE`` keeps the verdicts, ``--before FILE`` exits 1 where a mutant lives that died
there. Each mutant meets the tests of its folder, then those that import its module.
"""

import argparse
import ast
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FOLDERS = ("dsl", "synth", "backends")
SECONDS = 900  # of the CPU, for the tests of a mutant: one that loops for ever has died
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
DROPPED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A statement or comparison of a function, and the text that takes its place."""

    key: str
    """Digest of the function's name and both texts: its rank in the drawing."""
    path: str
    begin: tuple[int, int]  # line from 1, column from 0 in bytes, as syntax trees count
    end: tuple[int, int]
    text: str
    instead: str

    def applied(self, whole: str) -> str:
        """Return the file with the mutation."""
        lines = whole.encode().splitlines(keepends=True)
        first, last = lines[self.begin[0] - 1], lines[self.end[0] - 1]
        middle = first[: self.begin[1]] + self.instead.encode() + last[self.end[1] :]
        lines[self.begin[0] - 1 : self.end[0]] = [middle]
        return b"".join(lines).decode()


def mutants(repo: Path) -> Iterator[Mutant]:
    """Every mutation of every function of the product."""
    for folder in FOLDERS:
        for path in sorted((repo / folder).rglob("*.py")):
            if "embedded" in path.parts or "templates" in path.parts:
                continue
            for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(function, ast.FunctionDef):
                    yield from _of_function(str(path.relative_to(repo)), function)


def _of_function(path: str, function: ast.FunctionDef) -> Iterator[Mutant]:
    for node in (inside for statement in function.body for inside in ast.walk(statement)):
        instead = _instead(node)
        if instead is not None and isinstance(node, ast.stmt | ast.expr):
            text = ast.unparse(node)
            key = hashlib.sha256(f"{function.name}\n{text}\n{instead}".encode()).hexdigest()
            begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
            assert end[0] is not None
            assert end[1] is not None
            yield Mutant(key, path, begin, (end[0], end[1]), text, instead)


def _instead(node: ast.AST) -> str | None:
    """The mutated text; None where this kind of node is not mutated."""
    if isinstance(node, DROPPED):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Yield)
        return None if text else "pass"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
        flipped = [FLIPPED[type(node.ops[0])](), *node.ops[1:]]
        return f"({ast.unparse(ast.Compare(node.left, flipped, node.comparators))})"
    return None


def tests_of(tree: Path, path: str) -> list[str]:
    """Tests that should see a mutant of a module, the nearest folder first."""
    near = tree / "tests" / Path(path).parent
    while not near.is_dir():
        near = near.parent
    folders = [str(near.relative_to(tree))] if near != tree / "tests" else []
    module = "weft." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    files = sorted((tree / "tests").rglob("test_*.py"))
    naming = [one for one in files if f"{module} import" in one.read_text(encoding="utf-8")]
    return folders + [str(one.relative_to(tree)) for one in naming if near not in one.parents]


def verdict(tree: Path, mutant: Mutant) -> str:
    """``died`` or ``lives``, after the tests of the mutant's module."""
    file = tree / mutant.path
    whole = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(whole), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    env = os.environ | {"PYTHONPATH": str(tree / "build" / "link"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            [*command, *tests_of(tree, mutant.path)],
            cwd=tree,
            env=env,
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
        )
    finally:
        file.write_text(whole, encoding="utf-8")
    return "lives" if ran.returncode == 0 else "died"


def copied(tree: Path, tests: str) -> None:
    """Copy what git tracks to ``tree``, with the tests of a revision; and link it as ``weft``."""
    named = subprocess.run(
        ["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True
    )
    for name in named.stdout.splitlines():
        if (REPO / name).is_file() and not (tests and name.startswith("tests/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPO / name, tree / name)
    if tests:
        packed = subprocess.run(
            ["git", "archive", tests, "tests"], cwd=REPO, capture_output=True, check=True
        )
        subprocess.run(["tar", "x"], cwd=tree, input=packed.stdout, check=True)
    subprocess.run([sys.executable, "hatch_build.py"], cwd=tree, check=True)


def main() -> int:
    """Print each mutant's verdict; exit 1 where one lives that died before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--tests", default="", metavar="REV")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--before", type=Path)
    args = parser.parse_args()
    before = json.loads(args.before.read_text(encoding="utf-8")) if args.before else {}
    verdicts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="weft-mutants-") as folder:
        tree = Path(folder)
        copied(tree, args.tests)
        drawn = {one.key: one for one in mutants(tree)}
        for key in sorted(drawn)[: args.count]:
            mutant = drawn[key]
            verdicts[key] = verdict(tree, mutant)
            shown = mutant.text.partition("\n")[0][:60]
            print(f"{verdicts[key]}  {mutant.path}:{mutant.begin[0]}  {shown}", flush=True)
            if args.write:
                args.write.write_text(json.dumps(verdicts, indent=1), encoding="utf-8")
    died = sum(one == "died" for one in verdicts.values())
    worse = [key for key, one in verdicts.items() if one == "lives" and before.get(key) == "died"]
    print(f"{died} of {len(verdicts)} mutants died; {len(worse)} live that died before")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
