"""Dataclasses whose methods are written at their first call behave as the standard ones do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from weft.dsl.base.lazy_dataclass import dataclass as lazy

OPTIONS = [
    dict(zip(("frozen", "eq", "order", "slots", "kw_only"), chosen, strict=True))
    for chosen in itertools.product((False, True), repeat=5)
    if chosen[1] or not chosen[2]  # an order needs __eq__
]


def _decorated(decorator: Callable[..., Any], options: dict[str, bool]) -> Any:
    class Hop:
        src: int
        dst: int = 3
        via: list[int] = dataclasses.field(default_factory=list, compare=False, repr=False)
        total: int = dataclasses.field(init=False, default=0)
        lanes: int = dataclasses.field(init=False, default=4)
        width: ClassVar[int] = 8

        def __post_init__(self) -> None:
            if self.src < 0:
                raise ValueError("src is negative")
            object.__setattr__(self, "total", self.src + self.dst)

    return decorator(**options)(Hop)


def outcome(asked: Callable[[Any], object], hop: type[Any]) -> object:
    """Return what a question returns, or the type and the text of what it raises."""
    try:
        return asked(hop)
    except Exception as error:  # whatever it is, both have to raise it
        return type(error), str(error)


ASKED: list[Callable[[Any], object]] = [
    lambda hop: repr(hop(src=1)),
    lambda hop: repr(hop(1, 2)),
    lambda hop: hop() and None,
    lambda hop: hop(src=1, wrong=2) and None,
    lambda hop: hop(src=-1) and None,
    lambda hop: hop(src=1) == hop(src=1, via=[4]),
    lambda hop: hop(src=1) == (1, 3, 4, 4),
    lambda hop: hop(src=1) != hop(src=2),
    lambda hop: hash(hop(src=1)) == hash((1, 3, 4, 4)),
    lambda hop: sorted([hop(src=2), hop(src=1)]) == [hop(src=1), hop(src=2)],
    lambda hop: hop(src=1) <= hop(src=2),
    lambda hop: setattr(hop(src=1), "dst", 5),
    lambda hop: delattr(hop(src=1), "dst"),
    lambda hop: dataclasses.replace(hop(src=1), dst=7).total,
    lambda hop: dataclasses.asdict(hop(src=1)),
    lambda hop: [field.name for field in dataclasses.fields(hop)],
    lambda hop: hop.__match_args__,
    lambda hop: copy.deepcopy(hop(src=1, via=[9])).via,
    lambda hop: hasattr(hop(src=1), "__dict__"),
    lambda hop: hop.__dataclass_params__.frozen,
    lambda hop: str(inspect.signature(hop)),
    lambda hop: hop(src=1).lanes,
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_all_options_behave_as_in_the_standard_library(options: dict[str, bool]) -> None:
    for asked in ASKED:
        standard, ours = (_decorated(each, options) for each in (dataclasses.dataclass, lazy))
        assert outcome(asked, ours) == outcome(asked, standard)


@lazy(frozen=True, slots=True, weakref_slot=True)
class Port:
    """A port."""

    node: int
    number: int = 0


@lazy(frozen=True)
class Named(Port):
    """A port with a name: under a frozen class."""

    name: str = ""


def test_a_frozen_class_with_slots_is_pickled_before_and_after_its_first_comparison() -> None:
    port = Port(3, 4)
    assert pickle.loads(pickle.dumps(port)) == port
    assert copy.copy(Named(1, 2, "x")) == Named(1, 2, "x")


def test_classes_under_a_frozen_one_have_methods_of_their_own() -> None:
    assert repr(Named(1, 2, "x")) == "Named(node=1, number=2, name='x')"
    assert repr(Port(1, 2)) == "Port(node=1, number=2)"
    assert Named(1, 2) != Port(1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        Named(1).name = "y"  # type: ignore[misc]


def test_a_standard_dataclass_can_stand_under_one_of_ours() -> None:
    @dataclasses.dataclass(frozen=True)
    class Wide(Port):
        lanes: int = 4

    assert Wide(1, lanes=2) == Wide(1, 0, 2)
    assert hash(Wide(1)) == hash((1, 0, 4))


def test_a_plain_class_under_a_frozen_one_can_add_names_and_not_change_fields() -> None:
    class Marked(Port):
        pass

    marked = Marked(1)
    marked.mark = True  # type: ignore[attr-defined]
    assert marked.mark  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        marked.node = 2  # type: ignore[misc]


def test_methods_that_a_class_defines_stay() -> None:
    @lazy(frozen=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == Own(2)
    assert repr(Own(1)) == "own"
    assert hash(Own(1)) == hash((1,))


def test_a_signature_is_that_of_the_class_asked() -> None:
    assert (
        str(inspect.signature(Named))
        == "(node: 'int', number: 'int' = 0, name: 'str' = '') -> None"
    )

    class Wide(Port):
        def __init__(self, lanes: int) -> None:
            super().__init__(lanes)

    assert str(inspect.signature(Wide)) == "(lanes: 'int') -> 'None'"
    assert Wide(3).node == 3


def test_a_method_that_was_replaced_before_the_first_call_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @lazy
    class Count:
        n: int = 0

    monkeypatch.setattr(Count, "__repr__", lambda self: "patched")
    assert Count() == Count()
    assert repr(Count()) == "patched"
