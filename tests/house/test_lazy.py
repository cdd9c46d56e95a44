"""Starting is cheap: what is loaded is counted, since time depends on the machine."""

import ast
import subprocess
import sys
from importlib.util import find_spec

import pytest
from until import HANGS

from sources import sources
from weft.backends.kernels import lacking

SOLVERS = {"cupy", "flint", "jax", "mpi4py", "numba", "ortools", "pulp", "torch", "z3"}
HEAVY = SOLVERS | {"jinja2", "lark", "networkx", "numpy", "rich", "scipy"}

REPORT = "import sys; sys.stderr.write('\\nLOADED ' + ' '.join(sys.modules))"


def loaded(statement: str) -> set[str]:
    """The modules in memory after a statement, in a fresh interpreter."""
    code = f"try:\n    {statement}\nexcept SystemExit as stop:\n    assert not stop.code\n"
    done = subprocess.run(
        [sys.executable, "-c", code + REPORT], capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("LOADED ")[2].split())


def test_the_probe_sees_a_heavy_module() -> None:
    assert "numpy" in loaded("import numpy")


def test_import_weft_loads_nothing_heavy() -> None:
    modules = loaded("import weft")
    assert "weft" in modules
    assert modules & HEAVY == set()


@pytest.mark.parametrize("package", ["weft.dsl", "weft.synth", "weft.backends"])
def test_a_package_loads_no_solver(package: str) -> None:
    assert loaded(f"import {package}") & SOLVERS == set()


@pytest.mark.skipif(find_spec("weft.backends.cli") is None, reason="no command line yet")
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_the_command_line_answers_without_loading_anything_heavy(argument: str) -> None:
    call = f"import sys; sys.argv = ['weft', {argument!r}]; "
    modules = loaded(call + "from weft.backends.cli import main; sys.exit(main())")
    assert modules & HEAVY == set()


UNUSED = {
    "bound -t dgx1 -c allgather": {"weft.dsl.importers.recognized", "weft.synth.joint.bound"},
    "synth -t dgx1 -c allgather": {"weft.synth.engines.packing.engine", "weft.synth.joint.bound"},
}
"""Modules that commands must not load: readers of files, engines whose turn does not come."""


@pytest.mark.parametrize("words", UNUSED)
def test_a_small_command_loads_what_it_uses(words: str) -> None:
    call = f"import sys; sys.argv = ['weft', *{words.split()!r}]; "
    modules = loaded(call + "from weft.backends.cli import main; sys.exit(main())")
    assert modules & (UNUSED[words] | {"numpy.ma", "numba", "networkx", "scipy.sparse"}) == set()


SEARCHES = (
    "torus:8x8 -c allgather -e greedy --objective time --size 1MiB",
    "dgx-a100:nodes=2 -c allgather --objective bandwidth",
    "dgx1 -c alltoall --objective bandwidth",
)
MACHINE_CODE = {"numba", "llvmlite"}
UNUSED_IN_SEARCHES = {"jinja2", "lark", "networkx", "pandas", "scipy"}


@pytest.mark.parametrize("words", SEARCHES)
def test_a_search_loads_no_compiler_and_no_scipy(words: str) -> None:
    """But numba, which loads SciPy, for loops that are in no library."""
    argv = ["weft", "synth", "-t", *words.split(), "-q"]
    call = f"import sys; sys.argv = {argv!r}; "
    modules = loaded(call + "from weft.backends.cli import main; sys.exit(main())")
    assert not modules & (UNUSED_IN_SEARCHES - ({"scipy"} if "numba" in modules else set()))
    if not lacking():
        assert not modules & MACHINE_CODE


def test_modules_take_the_dataclass_that_is_quick_to_define() -> None:
    """But for the parts of emitted files, which run without weft."""
    standard = [
        str(source.path)
        for source in sources("dsl", "synth", "backends")
        if "embedded" not in source.path.parts and source.path.name != "lazy_dataclass.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if "dataclass" in {name.name for name in node.names}
    ]
    assert standard == []
