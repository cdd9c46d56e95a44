"""The limits of `tests/house/ratchets.toml`, and which figures are above them."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .tree import Figure

FILE = Path(__file__).resolve().parents[1] / "ratchets.toml"
SHOWN = 40


def ratchets(section: str) -> dict[str, Any]:
    """One section of the file."""
    found: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))[section]
    return found


def excess(figures: Iterable[Figure], limits: Mapping[str, float]) -> list[str]:
    """A line for every figure above its limit, with the places that were counted."""
    return [
        f"{one.key} is {one.value}, at most {limits[one.key]}: {'; '.join(one.places[:SHOWN])}"
        for one in figures
        if one.key in limits and one.value > limits[one.key]
    ]


def require_within(figures: Iterable[Figure], limits: Mapping[str, float]) -> None:
    """Fail with a line for every figure above its limit: pytest would cut a list of them short."""
    if found := excess(figures, limits):
        raise AssertionError(
            "\n".join([*found, f"{FILE.name} says how to lower or raise a figure"])
        )
