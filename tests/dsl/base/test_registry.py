from __future__ import annotations

import dataclasses
import pickle
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from weft.dsl.base.errors import Missing, PluginFault, UnknownName, UserError
from weft.dsl.base.plugins import PluginWarning
from weft.dsl.base.registry import BACKENDS, ENGINES, REGISTRIES, Registry


@dataclass(frozen=True)
class Toy:
    size: int = 1

    def halves(self, parts: int) -> float:
        return self.size / parts

    def fails(self, error: BaseException) -> None:
        raise error

    @property
    def twice(self) -> int:
        return 2 * self.size

    @staticmethod
    def zero() -> int:
        return 0

    @classmethod
    def one(cls) -> int:
        return cls().size


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module = ModuleType("weft_test_toys")
    module.Toy = Toy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "weft_test_toys", module)
    return Registry("toy", "weft.test.toys", {"toy": "weft_test_toys:Toy"})


def plug_in(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    """Let the installed packages provide these entry points."""

    def points_of(group: str) -> list[metadata.EntryPoint]:
        return [metadata.EntryPoint(name, value, group) for name, value in sorted(points)]

    monkeypatch.setattr("weft.dsl.base.registry.points_of", points_of)


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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GOAL", "goal"),
        ("LogGOPSim", "goal"),
        ("astra-sim", "chakra-et"),
        ("ASTRA-sim", "chakra-et"),
        ("msccl", "msccl-xml"),
        ("mscclpp", "mscclpp-json"),
    ],
)
def test_a_format_is_found_by_the_name_of_its_reader(name: str, meant: str) -> None:
    with pytest.raises(UnknownName) as error:
        BACKENDS.make(name, "--to")
    hint = error.value.hint or ""
    assert meant in hint
    assert not hint.startswith("known")


def test_outsiders_add_names(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, ("theirs", "weft_test_toys:Toy"))
    assert registry.names() == ("theirs", "toy")
    made = registry.make("theirs{size=2}")
    assert isinstance(made, Toy)
    assert made.size == 2


def test_one_name_from_two_packages_names_both(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(monkeypatch, ("new", "somebody.else:Toy"), ("new", "a.third:Toy"))
    assert registry.load("toy") is Toy
    with pytest.raises(UserError, match=r"a\.third:Toy.*somebody\.else:Toy"):
        registry.load("new")


def test_a_name_of_ours_cannot_be_taken(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(monkeypatch, ("toy", "somebody.else:Toy"))
    with pytest.warns(PluginWarning, match=r"is not used: weft has a toy of that name"):
        assert registry.load("toy") is Toy
    assert (registry.names(), registry.plugins()) == (("toy",), ())


def test_a_guard_leaves_the_class_as_it_is(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(monkeypatch, ("theirs", "weft_test_toys:Toy"))
    made = registry.make("theirs")
    with pytest.raises(PluginFault, match="the toy 'theirs' of weft_test_toys failed in halves"):
        made.halves(0)
    with pytest.raises(ZeroDivisionError):
        Toy().halves(0)
    assert type(pickle.loads(pickle.dumps(made))) is Toy
    assert registry.load("theirs") is type(made)


def test_a_guard_keeps_every_kind_of_method(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(monkeypatch, ("theirs", "weft_test_toys:Toy"))
    made = registry.make("theirs{size=3}")
    assert (made.halves(2), made.twice, made.zero(), made.one()) == (1.5, 6, 0, 1)
    assert dataclasses.replace(made, size=4).twice == 8


def test_an_interrupt_is_no_fault(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, ("theirs", "weft_test_toys:Toy"))
    made = registry.make("theirs")
    for error in (KeyboardInterrupt(), UserError("x")):
        with pytest.raises(type(error)):
            made.fails(error)
    with pytest.raises(PluginFault, match="'theirs' of weft_test_toys ran out of memory in fails"):
        made.fails(MemoryError())
    with pytest.raises(PluginFault, match="failed in fails: SystemExit: 3"):
        made.fails(SystemExit(3))


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
    with pytest.raises(Missing, match="'broken' of weft_test_broken cannot be loaded") as caught:
        registry.make("broken")
    assert caught.value.hint == "fix or uninstall the package of weft_test_broken"


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
