"""Every example in a docstring runs."""

import doctest
import pkgutil
import re
from importlib import import_module

import pytest

import weft
from sources import DATA_FOLDERS, ROOT, code


def modules() -> list[str]:
    """The names of all modules, except those that run when they are imported."""
    walk = pkgutil.walk_packages(weft.__path__, "weft.", onerror=_broken)
    return ["weft", *(m.name for m in walk if not m.name.endswith("__main__"))]


def _broken(name: str) -> None:
    raise ImportError(f"cannot import the package {name}")


EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)


@pytest.mark.parametrize("name", [s.module for s in code() if EXAMPLE.search(s.text)])
def test_docstring_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0, "the report is in the captured output"


def test_every_module_is_imported_and_none_is_forgotten() -> None:
    """What is walked as a package are the files that the examples are looked for in."""
    walked = {import_module(name).__name__ for name in modules()}
    files = {s.module for s in code() if not s.module.endswith("__main__")}
    assert walked == {"weft", *files, *(f"weft.{folder}" for folder in DATA_FOLDERS)}


def test_every_folder_with_code_is_a_package() -> None:
    """Without `__init__.py` a folder imports, but nothing walks it and no type is found."""
    folders = {source.path.parent for source in code()}
    assert [str(f) for f in sorted(folders) if not (ROOT / f / "__init__.py").exists()] == []
