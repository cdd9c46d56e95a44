"""What weft says of texts: cases in the files of ``texts``, each with its expected text.

A case is lines ``key: value``, the text behind a line of dashes, and behind an arrow what comes
out; a line of equals signs ends it. A case is added as text alone: ``WEFT_WRITE_TEXTS=1`` writes
what comes out of all cases into their files. The files of ``texts/beside`` lie beside a text.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from textwrap import fill

import pytest

from weft.dsl.author.recipe import load as load_recipe
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import paired, topology
from weft.dsl.importers.nccl_tests import read_run
from weft.dsl.importers.sketches.taccl_rules import translate
from weft.dsl.importers.taccl_sketch import read_taccl_sketch
from weft.dsl.importers.workloads.read import WorkloadSource, read_workload
from weft.dsl.language.elaborate import elaborate, machine_of
from weft.dsl.language.lint import lint
from weft.dsl.language.parse import parse

FOLDER = Path(__file__).parent / "texts"
FILES = sorted(file for file in FOLDER.rglob("*.txt") if file.parent.name != "beside")
TEXT, OUT, END = "-" * 40 + "\n", "-" * 38 + "->\n", "=" * 40 + "\n"

About = dict[str, str]


def node(value: object) -> str:
    """A node of a syntax tree without what has its default."""
    if isinstance(value, tuple):
        return f"({', '.join(map(node, value))})"
    if not is_dataclass(value):
        return repr(value)
    held = [(one, getattr(value, one.name)) for one in fields(value) if one.repr]
    told = [f"{one.name}={node(x)}" for one, x in held if x != one.default]
    return f"{type(value).__name__}({', '.join(told)})"


def sketch(about: About, text: str) -> str:
    tree = parse(text, "f")
    if "machine" not in about:
        return "\n".join(map(node, tree.statements))
    named = about["machine"] == "named"
    found = lint(tree, machine_of(tree) if named else topology(about["machine"]))
    return "\n".join(f"{one.concern}\n{one.render()}" for one in found)


def rules(about: About, text: str) -> str:
    made = elaborate(parse(text, "f"), topology(about["machine"]))
    heads = ("machine", "collective", "size", "engine")
    told = [f"{key} {vars(made)[key]}" for key in heads if vars(made)[key]]
    for rule in made.rules:
        held = {key: x for key, x in vars(rule).items() if key not in ("label", "span")}
        plain = {key: sorted(x) if isinstance(x, frozenset) else x for key, x in held.items()}
        told.append(f"{rule.label}: {type(rule).__name__} {plain}")
    return "\n".join(fill(line, 100, subsequent_indent="    ") for line in told)


def machine(about: About, text: str) -> str:
    if "run" in about:
        return str(read_run(text, about["file"]))
    made = topology(about["machine"])
    return "\n".join([repr(made), *made.notes])


def workload(about: About, text: str) -> str:
    ranks = int(about["ranks"]) if "ranks" in about else None
    made = read_workload(WorkloadSource(about["file"], about.get("from"), ranks=ranks))
    return "\n".join([repr(made), *made.notes])


def taccl(about: About, text: str) -> str:
    found = read_taccl_sketch(json.loads(text), "s.json", "idea")
    made = translate(found, paired(Path("hub.json").read_text(), "hub.json", found))
    return "\n".join([made.text, *map(str, made.remarks)])


def recipe(about: About, text: str) -> str:
    return repr(load_recipe(about["file"]))


KINDS: dict[str, Callable[[About, str], str]] = {
    one.__name__: one for one in (sketch, rules, machine, workload, taccl, recipe)
}


def cases(text: str) -> Iterator[tuple[About, str]]:
    for case in filter(str.strip, text.split(END)):
        head, _, rest = case.partition(TEXT)
        lines = (line.partition(": ") for line in head.splitlines())
        yield {key: value for key, _, value in lines}, rest.partition(OUT)[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_texts(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER / "beside", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    found = []
    for about, text in cases(file.read_text()):
        if "file" in about:
            Path(about["file"]).write_text(text)
        try:
            told = KINDS[file.parent.name](about, text)
        except UserError as error:
            told = error.render()
        head = "".join(f"{key}: {value}\n" for key, value in about.items())
        found.append(f"{head}{TEXT}{text}{OUT}{told}\n")
    if os.environ.get("WEFT_WRITE_TEXTS"):
        file.write_text(END.join(found))
    assert END.join(found) == file.read_text()
