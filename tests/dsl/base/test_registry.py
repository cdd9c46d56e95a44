from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from weft.dsl.base.errors import Missing, UnknownName, UserError
from weft.dsl.base.registry import ENGINES, REGISTRIES, Registry


@dataclass(frozen=True)
class Toy:
    size: int = 1


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module = ModuleType("weft_test_toys")
    module.Toy = Toy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "weft_test_toys", module)
    return Registry("toy", "weft.test.toys", {"toy": "weft_test_toys:Toy"})


def plug_in(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    """Let the installed packages provide these entry points."""

    def entry_points(group: str) -> list[metadata.EntryPoint]:
        return [metadata.EntryPoint(name, value, group) for name, value in points]

    monkeypatch.setattr(metadata, "entry_points", entry_points)


def test_a_spec_makes_an_instance(registry: Registry) -> None:
    assert registry.make("toy{size=3}") == Toy(3)


def test_listing_names_imports_nothing() -> None:
    registry = Registry("toy", "weft.test.toys", {"toy": "no_such_module:Toy"})
    assert registry.names() == ("toy",)


def test_an_unknown_name_suggests_the_nearest(registry: Registry) -> None:
    with pytest.raises(UnknownName, match="unknown toy 'tox'") as caught:
        registry.make("tox{size=3}", "--toy")
    assert caught.value.hint == "did you mean 'toy'?"
    assert str(caught.value.where) == "--toy:1:1"


def test_outsiders_add_names(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, ("theirs", "weft_test_toys:Toy"))
    assert registry.names() == ("theirs", "toy")
    assert registry.make("theirs") == Toy()


@pytest.mark.parametrize(
    "points",
    [
        [("toy", "somebody.else:Toy")],
        [("new", "somebody.else:Toy"), ("new", "a.third:Toy")],
    ],
)
def test_one_name_from_two_packages_names_both(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, points: list[tuple[str, str]]
) -> None:
    plug_in(monkeypatch, *points)
    with pytest.raises(UserError) as caught:
        registry.load("toy")
    assert "somebody.else:Toy" in caught.value.message
    assert ("weft_test_toys:Toy" if len(points) == 1 else "a.third:Toy") in caught.value.message


def test_a_missing_package_says_what_to_install() -> None:
    registry = Registry("toy", "weft.test.toys", {"toy": "weft_no_such_package.sub:Toy"})
    with pytest.raises(Missing, match="'weft_no_such_package'") as caught:
        registry.load("toy")
    assert caught.value.hint == "install it: pip install weft_no_such_package"


@pytest.mark.parametrize("text", ["def f(:", "1 / 0", "raise RuntimeError('no licence')"])
def test_a_module_that_fails_to_load_is_missing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "weft_test_broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "weft_test_broken", raising=False)
    plug_in(monkeypatch, ("broken", "weft_test_broken:Toy"))
    with pytest.raises(Missing, match="the toy 'broken' cannot be loaded") as caught:
        registry.make("broken")
    assert caught.value.hint == "mend or uninstall the package of weft_test_broken"


def test_a_missing_attribute_is_no_traceback(registry: Registry) -> None:
    broken = Registry("toy", "weft.test.toys", {"toy": "weft_test_toys:Nothing"})
    with pytest.raises(Missing, match="is not at weft_test_toys:Nothing"):
        broken.load("toy")


@pytest.mark.parametrize("word", REGISTRIES)
def test_every_built_in_name_leads_somewhere(word: str) -> None:
    registry = REGISTRIES[word]
    for name in registry.names():
        assert registry.load(name) is not None


def test_the_first_engine_is_there() -> None:
    assert "exact" in ENGINES.names()
