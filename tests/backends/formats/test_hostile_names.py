"""Names from files of others are text in every emitted file, and none of its code is executed by
``weft check``."""

import ast
import json
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import pytest

from weft import Objective, Problem, synthesize
from weft.backends.cli import main
from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact_of
from weft.backends.compile.request import Request
from weft.backends.compile.source import BY_MESSAGES, source_of
from weft.backends.formats.format import ExecutionRequest, format_named
from weft.backends.formats.recognition import own_format
from weft.backends.formats.templates import said
from weft.dsl.base.registry import BACKENDS
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.schedule import Schedule

NAMES = (
    '"""',
    'a"',
    "\\",
    '\\"""\nboom()\n"""',
    'x"""\nboom()\n"""',
    "x'''\n'); boom(); ('",
    "\x1b[31m\x07\r\n\x00",
    "\u202e\u2028\ufeff",
    "é𝄞",
    "</script><b>&amp; ]]> -->",
    "*/ // # --",
    "{0} {ranks.__class__} %s {{ 7 }} {% x %}",
    "$(boom)`boom`;boom",
    "\\N{BEL}\\x\\u",
    "HEADER = {'weft': 'torch-symm'",
    '"weft": "torch-calls"',
    "class",
    "call",
    "8 ranks",
)
FORMATS = tuple(BACKENDS.builtin)
PARSE = {".py": ast.parse, ".xml": ElementTree.fromstring, ".json": json.loads}


@cache
def plain() -> Schedule:
    problem = Problem(topology("hub:2"), make("allreduce", 2), objective=Objective.LATENCY)
    return synthesize(problem).points[0].schedule


def named(name: str, custom: bool) -> Schedule:
    """A schedule of which everything that can have a name has this one."""
    made = plain()
    kind = {"kind": Kind.CUSTOM, "name": name} if custom else {}
    nodes = tuple(replace(n, name=f"{name}{k}") for k, n in enumerate(made.topology.nodes))
    return replace(
        made,
        topology=replace(made.topology, name=name, nodes=nodes, symmetries=()),
        collective=replace(made.collective, **kind),
        provenance={**made.provenance, "engine": name, "problem": name, "cites": name},
    )


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("custom", [False, True], ids=["standard", "custom"])
def test_a_name_is_text_in_an_emitted_file_of_its_format(to: str, custom: bool) -> None:
    if custom and to == "torch-calls":
        pytest.skip("it is for allreduce only")
    backend = format_named(to)
    for name in NAMES:
        source = source_of(named(name, custom), to)
        lines = (f"Made by weft from {name}.", f"problem: {name}")
        about = Request(to=to, name=name, module=name, where=name, output=name, provenance=lines)
        sizes = SizeRange(1 << 20, 1 << 20) if to in BY_MESSAGES else None
        found = artefact_of(source, backend, CompileOptions(), sizes, about)
        text = found.text
        assert all(c.isprintable() or c == "\n" for c in text), name
        data = json.loads(text) if text.startswith("{") else None
        assert format_named(str(own_format(text, data))).kind == backend.kind, name
        tree = PARSE.get(backend.suffix, str)(text)
        if backend.suffix == ".py":
            calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
            assert not any("boom" in call for call in calls), name
        if to in ("mpi", "torch", "cupy-nccl"):
            request = ExecutionRequest(interleavings=1, collective=source.collective)
            done = backend.execute(text, "file", request)
            assert done.ok, (name, done.detail)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_docstring_says_is_the_text_with_codes_for_what_is_not_printed(name: str) -> None:
    for before, after in (("", "\n"), ("see ", ".")):
        (found,) = ast.parse(f'"""{before}{said(name)}{after}"""').body
        assert isinstance(found, ast.Expr)
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
        assert ast.literal_eval(found.value) == f"{before}{shown}{after}"


BOOM = '__import__("pathlib").Path("boom").touch()'


@pytest.mark.parametrize("to", ["mpi", "torch", "cupy-nccl", "jax", "torch-symm", "torch-calls"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""', f'"""{{"""; {BOOM}; """'),
        ("\nHEADER = ", f"\n{BOOM}\nHEADER = "),
        ("\nHEADER = ", f"\nHEADER = {BOOM}\nHEADER = "),
        ('"weft": ', f'"x": {BOOM}, "weft": '),
        ("'weft': ", f"'x': {BOOM}, 'weft': "),
        ("\nimport ", f"\nimport os; {BOOM}\nimport "),
        ("\ndef ", f"\n{BOOM}\n\n\ndef "),
        ("    return ", f"    {BOOM}\n    return "),
        ("):\n", f"):\n    {BOOM}\n"),
    ],
)
def test_check_executes_nothing_of_a_file(to, before, after, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = artefact_of(source_of(plain(), to), format_named(to), CompileOptions(), None)
    file = tmp_path / "file.py"
    file.write_text(made.text.replace(before, after, 1))
    assert main(["check", str(file)]) in (0, 1, 2)
    assert not (tmp_path / "boom").exists()
