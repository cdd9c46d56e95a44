"""dsl <- synth <- backends, in one direction, and each file knows its place."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from sources import CODE_FOLDERS, DATA_FOLDERS, Import, Source, code, imports, parse, sources, walk

ALLOWED = {"dsl": {"dsl"}, "synth": {"dsl", "synth"}, "backends": {"dsl", "synth", "backends"}}
# Inside backends these make a program run; they must not need the search that found it,
# nor the parts that show it.
RUNNING = ("check", "compile.passes", "compile.analyses", "execute", "formats", "judge")
TIMING = ("weft.synth.time", "weft.synth.fabric")  # a format may time what it holds
SHOWING = {"cli", "report"}
# Judges share no code with what they judge.
JUDGES = (
    "check",
    "execute",
    "judge",
    "formats.msccl.check",
    "formats.msccl.read",
    "formats.msccl.run",
    "formats.messages.judge",
    "formats.messages.replay",
    "formats.mscclpp.check",
    "formats.mscclpp.interpret",
    "formats.mscclpp.machine",
    "formats.mscclpp.plan.events",
    "formats.p2p.check",
    "formats.p2p.judge",
)
MAKERS = (
    "compile",
    "formats.msccl.emit",
    "formats.messages.lower",
    "formats.mscclpp.lower",
    "formats.mscclpp.plan.order",
    "formats.mscclpp.plan.write",
)
MAY_PRINT = {"cli", "bench"}
ROOT_FILE = "backends/_root.py"  # becomes weft/__init__.py, which may name everything


def is_ours(module: str) -> bool:
    return module == "weft" or module.startswith("weft.")


def unit(module: str) -> str:
    """The part inside a folder: weft.backends.formats.msccl.xml is "emit", weft.dsl is ""."""
    return [*module.split("."), "", ""][2]


def crossing(source: Source, imp: Import) -> str | None:
    """Say what is wrong with an import between folders, if anything is."""
    top = imp.module.partition(".")[0]
    if top in {*CODE_FOLDERS, *DATA_FOLDERS}:
        return f"bare import of {imp.module}; write weft.{imp.module}"
    if not is_ours(imp.module):
        return None
    if imp.module == "weft" and not imp.dots:
        if imp.name == "__version__":
            return None
        if imp.name not in {*CODE_FOLDERS, *DATA_FOLDERS}:
            return "imports the public face; import from the folder that defines the name"
    target = f"{imp.module}.{imp.name}".split(".")[1]
    if imp.dots and target != source.folder:
        return f"relative import into {target}; write weft.{target}"
    if not imp.dots and target == source.folder:
        return f"absolute import of its own folder {target}; write it relative"
    if target not in ALLOWED[source.folder] | set(DATA_FOLDERS):
        return f"{source.folder} must not know {target}"
    return None


def misplaced(source: Source, imp: Import) -> str | None:
    """Say whether a pass, emitter or runner reaches for the search or for the reports."""
    if not within(source.module, RUNNING):
        return None
    target = f"{imp.module}.{imp.name}"
    if target.startswith("weft.synth") and not target.startswith(TIMING):
        return f"{unit(source.module)} must know dsl only, not {imp.module}"
    if target.startswith("weft.backends.") and unit(target) in SHOWING:
        return f"{unit(source.module)} must not know {unit(target)}"
    return None


def within(module: str, parts: tuple[str, ...]) -> bool:
    """Whether a module is one of these parts of the backends, or in one."""
    return any(f"{module}.".startswith(f"weft.backends.{part}.") for part in parts)


def biased(source: Source, imp: Import) -> str | None:
    """Say whether a judge uses what makes the thing that it judges."""
    target = f"{imp.module}.{imp.name}"
    if within(source.module, JUDGES) and within(target, MAKERS):
        return f"a judge must not know {imp.module}"
    return None


def test_a_module_that_starts_as_a_program_does_so_at_its_end() -> None:
    """Names below the start are not there yet when a rank or a child runs."""
    for source in (one for folder in CODE_FOLDERS for one in sources(folder)):
        for place, node in enumerate(source.tree.body, 1):
            if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
                assert place == len(source.tree.body), str(source)


def faults(source: Source) -> Iterator[str]:
    if str(source) == ROOT_FILE:
        return
    for imp in imports(source):
        for rule in (crossing, misplaced, biased):
            if fault := rule(source, imp):
                yield f"{source}:{imp.line}: {fault}"


def prints(source: Source) -> Iterator[str]:
    if source.folder == "backends" and unit(source.module) in MAY_PRINT:
        return
    for node in walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield f"{source}:{node.lineno}: print; return the text instead"


def test_imports_keep_the_order() -> None:
    assert [fault for source in code() for fault in faults(source)] == []


def test_only_the_command_line_prints() -> None:
    assert [fault for source in code() for fault in prints(source)] == []


def edges(source: Source, modules: set[str]) -> set[str]:
    """The modules that loading this file loads; a file's own packages are not counted."""
    found = set()
    for imp in imports(source):
        if imp.eager:
            full = f"{imp.module}.{imp.name}"
            found.add(full if full in modules else imp.module)
    return found & modules - {source.module}


def cycle(files: tuple[Source, ...]) -> list[str]:
    """The modules of one import cycle, sorted; empty if there is none."""
    modules = {source.module for source in files}
    graph = TopologicalSorter({s.module: edges(s, modules) for s in files})
    try:
        graph.prepare()
    except CycleError as error:
        return sorted(set(error.args[1]))
    return []


def test_there_are_no_import_cycles() -> None:
    assert cycle(code()) == []


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("dsl/a.py", "from weft.synth import verify", "must not know synth"),
        ("dsl/a.py", "def f():\n    import weft.backends.cli", "must not know backends"),
        ("synth/a.py", "import weft.backends", "must not know backends"),
        ("synth/a.py", "from weft import backends", "must not know backends"),
        ("synth/a.py", "import dsl", "bare import"),
        ("synth/a.py", "from dsl.topology import Topology", "bare import"),
        ("synth/a.py", "from ..dsl import Topology", "relative import into dsl"),
        ("synth/engines/a.py", "from ... import dsl", "relative import into dsl"),
        ("synth/a.py", "from weft.synth import verify", "write it relative"),
        ("synth/a.py", "from weft import Topology", "public face"),
        ("backends/compile/passes/a.py", "from weft.synth import verify", "dsl only"),
        ("backends/formats/a.py", "from weft import synth", "dsl only"),
        ("backends/check/a.py", "from ..cli import main", "must not know cli"),
        ("backends/execute/a.py", "from ..report import text", "must not know report"),
        ("backends/check/a.py", "from ..compile.passes import fuse", "a judge must not know"),
        ("backends/formats/mscclpp/check/a.py", "from ..plan.order import x", "a judge must not"),
        ("backends/formats/mscclpp/check/a.py", "from .. import lower", "a judge must not know"),
    ],
)
def test_the_rule_sees_a_wrong_import(path: str, text: str, fault: str) -> None:
    assert fault in " ".join(faults(parse(text, path)))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("dsl/a.py", "import numpy\nfrom .b import c"),
        ("synth/engines/a.py", "from weft.dsl import Topology\nfrom ..bounds import cut"),
        ("synth/a.py", "from weft import __version__"),
        ("backends/compile/a.py", "from ..check import check\nfrom weft.dsl import Program"),
        ("backends/cli/a.py", "from weft.synth import verify\nprint(verify)"),
    ],
)
def test_the_rule_lets_a_right_import_pass(path: str, text: str) -> None:
    source = parse(text, path)
    assert [*faults(source), *prints(source)] == []


def test_the_rule_sees_a_print() -> None:
    assert list(prints(parse("def f():\n    print(1)", "synth/a.py")))


def test_the_rule_sees_a_cycle() -> None:
    a = parse("from .b import x", "dsl/a.py")
    b = parse("from . import a", "dsl/b.py")
    lazy = parse("def f():\n    from . import a", "dsl/b.py")
    assert cycle((a, b)) == ["weft.dsl.a", "weft.dsl.b"]
    assert cycle((a, lazy)) == []
