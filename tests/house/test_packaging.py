"""What was tried once about packaging, and would break without a word."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from until import HANGS

import weft
from sources import CODE_FOLDERS, DATA_FOLDERS, ROOT, code, imports
from weft.backends.cli.verbs.doctor import NEEDED, OPTIONAL

FOLDERS = {*CODE_FOLDERS, *DATA_FOLDERS}

SOLVERS = {
    "HiGHS": """
from scipy.optimize import linprog
assert linprog([-1, -2], A_ub=[[1, 1]], b_ub=[4], bounds=(0, 3), method="highs").fun == -7
""",
    "CP-SAT": """
from ortools.sat.python import cp_model
model = cp_model.CpModel()
x, y = (model.new_int_var(0, 3, name) for name in "xy")
model.add(x + y <= 4)
model.maximize(x + 2 * y)
solver = cp_model.CpSolver()
solver.parameters.num_workers = 1
assert solver.solve(model) == cp_model.OPTIMAL and solver.objective_value == 7
""",
    "OR-Tools HiGHS": """
from ortools.math_opt.python import mathopt
model = mathopt.Model()
x, y = (model.add_variable(lb=0, ub=3) for _ in "xy")
model.add_linear_constraint(x + y <= 4)
model.maximize(x + 2 * y)
assert abs(mathopt.solve(model, mathopt.SolverType.HIGHS).objective_value() - 7) < 1e-9
""",
    "Z3": """
import z3
x, y = z3.Ints("x y")
optimum = z3.Optimize()
optimum.add(0 <= x, x <= 3, 0 <= y, y <= 3, x + y <= 4)
goal = optimum.maximize(x + 2 * y)
assert optimum.check() == z3.sat and goal.value().as_long() == 7
""",
}


@pytest.mark.parametrize("turn", [1, -1], ids=["forth", "back"])
def test_the_solvers_work_in_one_process_in_both_orders(turn: int) -> None:
    """Some wheels bundle the same library and clash by symbol; so it is tried, both ways."""
    program = "".join(list(SOLVERS.values())[::turn])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 0, done.stderr


def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def build_hook() -> ModuleType:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_folders_are_named_alike_everywhere() -> None:
    targets = config()["tool"]["hatch"]["build"]["targets"]
    assert set(build_hook().FOLDERS) == FOLDERS
    assert set(targets["wheel"]["packages"]) == FOLDERS
    assert targets["wheel"]["sources"] == {name: f"weft/{name}" for name in FOLDERS}
    assert set(targets["sdist"]["only-include"]) >= FOLDERS | {"tests", "hatch_build.py"}


def test_loops_are_compiled_with_the_packages_of_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip names those of an isolated build by PYTHONPATH; without them the wheel had no loops."""
    monkeypatch.setenv("PYTHONPATH", "/packages/of/the/build")
    asked: list[str] = []
    hook = build_hook()
    monkeypatch.setattr(
        hook.subprocess, "run", lambda _, env, **__: asked.append(env["PYTHONPATH"])
    )
    hook.compile_kernels(ROOT, tmp_path)
    assert asked == [os.pathsep.join([str(tmp_path), "/packages/of/the/build"])]


def test_the_links_lead_to_the_folders(tmp_path: Path) -> None:
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    (tmp_path / "backends" / "_root.py").touch()
    (tmp_path / "backends" / "py.typed").touch()
    hook = build_hook()
    link = hook.make_links(tmp_path)
    assert hook.make_links(tmp_path) == link  # a second time, over the first
    assert {path.name for path in (link / "weft").iterdir()} == {
        *FOLDERS,
        "__init__.py",
        "py.typed",
    }
    assert all(path.exists() for path in (link / "weft").iterdir())


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the git checkout")
def test_wheel_and_sdist_hold_the_tree(tmp_path: Path) -> None:
    """After an editable install, as here, is when an sdist would lose the folders."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    compare = ROOT / "tests" / "packaging" / "compare_dist.py"
    plain = {**os.environ, "WEFT_MACHINE_CODE": "0"}  # to compile takes a minute
    for command in (build, [sys.executable, str(compare), "--untracked", str(tmp_path)]):
        done = subprocess.run(
            command, cwd=ROOT, env=plain, capture_output=True, text=True, timeout=HANGS
        )
        assert done.returncode == 0, done.stdout + done.stderr


def required() -> set[str]:
    return {re.split("[<>=]", line)[0] for line in config()["project"]["dependencies"]}


def test_every_dependency_is_imported_somewhere() -> None:
    modules = {imp.module.partition(".")[0] for source in code() for imp in imports(source)}
    names = {d: d.removeprefix("python-") for d in required()}  # python-flint is imported as flint
    assert {d for d, module in names.items() if module not in modules} == set()


def test_the_doctor_looks_for_every_dependency() -> None:
    assert set(NEEDED.values()) == required()
    extras = config()["project"]["optional-dependencies"]
    for package, extra, _ in OPTIONAL.values():
        listed = extras[extra.removeprefix("weft[").removesuffix("]")]
        assert package in {re.split("[<>=]", line)[0] for line in listed}


@pytest.mark.parametrize("folder", DATA_FOLDERS)
def test_data_is_found_as_a_resource(folder: str) -> None:
    assert files(import_module(f"weft.{folder}")).joinpath("__init__.py").is_file()


def test_the_installed_version_is_the_one_in_the_source() -> None:
    try:
        installed = version("weft")
    except PackageNotFoundError:
        pytest.skip("runs from links, without an installation")
    assert installed == weft.__version__


def test_the_lock_pins_exactly_and_names_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if pin.count("==") != 1 or "@" in pin or "/" in pin] == []


LICENCES = ("License-Expression", "License")


def needed_packages() -> dict[str, str]:
    """Packages that an installation brings, with all that their metadata says of licences."""
    open_ones, found = list(config()["project"]["dependencies"]), dict[str, str]()
    while open_ones:
        needed = Requirement(open_ones.pop())
        name = canonicalize_name(needed.name)
        if name in found or (needed.marker and not needed.marker.evaluate({"extra": ""})):
            continue
        there = distribution(needed.name)
        about = there.metadata
        terms = [(about.get(key) or "").partition("\n")[0] for key in LICENCES]
        terms += [x for x in about.get_all("Classifier") or [] if x.startswith("License")]
        found[name] = " ".join(terms)
        open_ones += there.requires or []
    return found


def test_every_needed_package_stands_in_the_table_of_licences() -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").partition("## Licences")[2]
    rows = re.findall(r"^\| ([a-z0-9-]+) \| [^|]+ \| ([^|]+) \|$", text, re.M)
    listed = {name: terms for name, terms in rows if name != "package"}
    found = needed_packages()
    assert listed.keys() == found.keys()
    # Metadata write one licence in several ways; its family they all name.
    family = re.compile(r"\b(?:A|L)?GPL|MPL|MIT|BSD|Apache|PSF|Python Software")
    for name, terms in found.items():
        families = {"PSF" if x.startswith("P") else x for x in family.findall(terms)}
        assert families == set(family.findall(listed[name])), (name, terms)
        assert not families & {"GPL", "AGPL"}, name


def test_an_isolated_build_has_all_that_kernels_need() -> None:
    """Numba compiles ``a @ b`` through SciPy, and links by setuptools: without them a wheel
    silently lacks its libraries."""
    needed = {"numba", "numpy", "setuptools"}
    kernels = [source for source in code() if "from weft.dsl.base.jit" in source.text]
    assert kernels
    matrices = [x for s in kernels for x in ast.walk(s.tree) if isinstance(x, ast.MatMult)]
    assert {Requirement(one).name for one in build_hook().KERNELS} == needed | (
        {"scipy"} if matrices else set()
    )
