"""The quick look whether installed packages offer anything."""

import os
import shutil
import sys
from importlib.machinery import PathFinder
from importlib.metadata import MetadataPathFinder
from pathlib import Path

import pytest
from toy_packages import install

from weft.dsl.base import installed
from weft.dsl.base.installed import mentioned, points_of
from weft.dsl.base.registry import Registry


@pytest.fixture(autouse=True)
def plain_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    """No finder of packages but Python's: others that tests before loaded may find any.

    The backport ``importlib_metadata`` (setuptools has a copy) also takes the method of Python's
    finder away when it is loaded, for the rest of the process: it is put back here.
    """
    find = MetadataPathFinder.find_distributions
    monkeypatch.setattr(PathFinder, "find_distributions", find, raising=False)
    mine = [x for x in sys.meta_path if x is PathFinder or not hasattr(x, "find_distributions")]
    monkeypatch.setattr(sys, "meta_path", mine)
    monkeypatch.setattr(sys, "path", [x for x in sys.path if Path(x or ".").is_dir()])


def test_only_groups_that_a_package_offers_are_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys = Registry("toy", "weft.test.toys")
    assert not mentioned("weft.test.toys")
    assert toys.offers() == {}
    install(tmp_path, monkeypatch, {}, {"weft.test.toys": {"bear": "weft_bear:Bear"}})
    assert mentioned("weft.test.toys")
    assert not mentioned("weft.test.games")
    assert [one.author for one in toys.offers()["bear"]] == ["weft-toy"]


def test_a_package_that_comes_or_goes_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    os.utime(tmp_path, (1, 1))  # clocks of file systems tick every few ms
    assert points_of("weft.test.toys") == ()
    install(tmp_path, monkeypatch, {}, {"weft.test.toys": {"bear": "weft_bear:Bear"}})
    os.utime(tmp_path, (2, 2))
    assert [one.name for one in points_of("weft.test.toys")] == ["bear"]
    (folder,) = tmp_path.glob("*.dist-info")
    shutil.rmtree(folder)
    assert points_of("weft.test.toys") == ()


def test_what_is_installed_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {}, {"weft.test.toys": {"bear": "weft_bear:Bear"}})
    first = points_of("weft.test.toys")
    monkeypatch.setattr(installed, "mentioned", None)
    assert points_of("weft.test.toys") is first


def test_what_cannot_be_searched_may_have_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "gone"))
    (tmp_path / "broken-1.dist-info" / "entry_points.txt").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not mentioned("weft.test.toys")
    wheel = tmp_path / "any.whl"
    wheel.write_bytes(b"")
    monkeypatch.syspath_prepend(str(wheel))
    assert mentioned("weft.test.toys")


def test_other_finders_may_find_any(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_distributions(self) -> None: ...

        def find_spec(self, *_: object) -> None: ...

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert mentioned("weft.test.toys")
