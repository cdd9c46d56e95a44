"""What steers the engines is listed, can be changed, and is in the provenance where it was."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import format_spec, groups_of, option_texts
from weft.synth.base.effort import Effort

OURS = tuple(ENGINES.builtin)
STEERED = [name for name in OURS if groups_of(ENGINES.load(name))]


def settings(effort: Effort, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All settings of an effort and of its parts: names from the outside in, the field."""
    for one in fields(effort):
        value = getattr(effort, one.name)
        if isinstance(value, Effort):
            yield from settings(value, (*path, one.name))
        else:
            yield (*path, one.name), one


def changed(effort: Effort, path: tuple[str, ...], value: object) -> Effort:
    """The effort with one setting of it, or of a part, changed."""
    name, *inner = path
    return replace(
        effort, **{name: changed(getattr(effort, name), tuple(inner), value) if inner else value}
    )


def written(path: tuple[str, ...]) -> str:
    return ".".join(("effort", *path)).replace("_", "-")


@pytest.mark.parametrize("name", STEERED)
def test_every_number_of_an_effort_is_documented(name: str) -> None:
    effort = ENGINES.make(name).effort
    assert isinstance(effort, Effort)
    assert all(one.metadata["doc"] for _, one in settings(effort))
    texts = {o.name: o for o in option_texts(ENGINES.load(name))}
    assert {written(path) for path, _ in settings(effort)} <= set(texts)
    assert all(o.doc and o.default is not None for o in texts.values())


@pytest.mark.parametrize("name", STEERED)
def test_what_is_changed_is_told_and_read_back(name: str) -> None:
    engine = ENGINES.make(name)
    assert format_spec(engine) == name
    for path, one in settings(engine.effort):
        value = one.default
        if isinstance(value, int | float) and not isinstance(value, bool):
            new = value + 1 if value + 1 <= one.metadata["most"] else value / 2
            other = replace(engine, effort=changed(engine.effort, path, new))
            text = f"{name}{{{written(path)}={new}}}"
            assert format_spec(other) == text
            assert ENGINES.make(text) == other
            with pytest.raises(UserError, match="it must be "):
                changed(engine.effort, path, -1)
            with pytest.raises(UserError, match="it must be at most "):
                changed(engine.effort, path, 10**26)
            if (
                value and one.metadata["least"] is None and isinstance(value, int | float)
            ):  # many are divisors
                with pytest.raises(UserError, match=r"is 0(\.0)?, it must be "):
                    changed(engine.effort, path, type(value)(0))
