"""What steers the engines is listed, can be changed, and is in the provenance where it was."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import format_spec, groups_of, option_texts
from weft.synth.base.effort import Effort

OURS = tuple(ENGINES.builtin)
STEERED = [name for name in OURS if groups_of(ENGINES.load(name))]


@pytest.mark.parametrize("name", STEERED)
def test_every_number_of_an_effort_is_documented(name: str) -> None:
    effort = ENGINES.make(name).effort
    assert isinstance(effort, Effort)
    assert all(one.metadata["doc"] for one in fields(effort))
    texts = {o.name: o for o in option_texts(ENGINES.load(name))}
    assert {f"effort.{one.name.replace('_', '-')}" for one in fields(effort)} <= set(texts)
    assert all(o.doc and o.default is not None for o in texts.values())


@pytest.mark.parametrize("name", STEERED)
def test_what_is_changed_is_told_and_read_back(name: str) -> None:
    engine = ENGINES.make(name)
    assert format_spec(engine) == name
    for one in fields(engine.effort):
        value = getattr(engine.effort, one.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            changed = replace(engine, effort=replace(engine.effort, **{one.name: value + 1}))
            text = f"{name}{{effort.{one.name.replace('_', '-')}={value + 1}}}"
            assert format_spec(changed) == text
            assert ENGINES.make(text) == changed
            with pytest.raises(UserError, match="it must be 0 or more"):
                replace(engine.effort, **{one.name: -1})
