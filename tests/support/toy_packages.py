"""Packages of others for tests: modules and entry points on the path, as pip leaves them."""

import sys
from collections.abc import Mapping
from importlib import invalidate_caches
from pathlib import Path

import pytest


def install(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: Mapping[str, str],
    points: Mapping[str, Mapping[str, str]],
    *,
    package: str = "weft-toy",
    version: str = "1.0",
) -> None:
    """Install a distribution into a folder that is put on the path.

    ``modules``: texts by name. ``points``: for each group its names and targets.
    """
    about = site / f"{package.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    lines = [
        line
        for group, named in points.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in named.items()))
    ]
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(site))
    invalidate_caches()
