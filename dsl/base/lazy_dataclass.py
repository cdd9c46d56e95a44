"""``dataclass`` as of the standard library, with methods that are written when first called.

The standard decorator writes and compiles six methods for each frozen class (0.7 to 1.1 ms of CPU
time on CPython 3.11). A small command imports 200 to 430 classes and makes objects of a few dozen,
so that was 40 % of the time. Here the standard library writes them too, but for each class
when its first object is made, printed or compared. Type checkers see the standard decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, fields, make_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast, dataclass_transform

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(plain=None, /, **options):
        """Decorate a class as ``dataclasses.dataclass`` does.

        But for ``unsafe_hash`` and ``InitVar``, which are not supported, and for a
        ``__setattr__`` of its own in a frozen class, which is replaced.
        """
        chosen = {**_DEFAULTS, **options}
        if plain is None:
            return lambda decorated: _decorated(decorated, chosen)
        return _decorated(plain, chosen)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Frozen:
    """Base whose subclasses are frozen dataclasses without a decorator: of families of nodes.

    Options (``kw_only=True``) follow the bases of a class.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, **options: bool) -> None:
        _decorated(cls, {**_DEFAULTS, "frozen": True, **options})


_DEFAULTS = {"init": True, "repr": True, "eq": True, "order": False, "frozen": False}

_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")


def _decorated(plain: type[Any], options: Mapping[str, bool]) -> type[Any]:
    """Return the class with its fields found, and with methods that write themselves.

    The standard library gets ``frozen`` only where a base is a frozen dataclass, where it
    insists: the two methods that refuse changes are the same for all classes here.
    """
    own = dict(vars(plain))
    plain.__doc__ = plain.__doc__ or plain.__name__
    shape = {name: on for name, on in options.items() if name not in _DEFAULTS}
    base_frozen = any(
        getattr(getattr(base, "__dataclass_params__", None), "frozen", False)
        for base in plain.__mro__[1:]
    )
    bare = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=base_frozen, **shape)
    made: Any = bare(plain)
    for name in _DEFAULTS:
        setattr(made.__dataclass_params__, name, options[name])
    names = tuple(name for name in _wanted(options) if not own.get(name))
    for name in names:
        setattr(made, name, _written_at_call(made, name, names, options))
    made.__signature__ = _SIGNATURE
    if "__eq__" in names and "__hash__" not in vars(made):
        made.__hash__ = None  # as by default where __eq__ is defined and objects can change
    if options["frozen"]:
        made.__setattr__, made.__delattr__ = _refuse_change, _refuse_deletion
        if options.get("slots") and "__getstate__" not in own:
            made.__getstate__, made.__setstate__ = _state, _restore
    return cast("type[Any]", made)


def _wanted(options: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the names of the methods that the standard decorator adds with these options."""
    wanted = {
        "__init__": options["init"],
        "__repr__": options["repr"],
        "__eq__": options["eq"],
        "__hash__": options["eq"] and options["frozen"],
        **dict.fromkeys(_ORDER, options["order"]),
    }
    return tuple(name for name, on in wanted.items() if on)


def _written_at_call(
    made: type[Any], name: str, names: tuple[str, ...], options: Mapping[str, bool]
) -> Callable[..., Any]:
    """Return a method that puts the real one in its place, and calls it.

    The first object without arguments gets its defaults without it: most settings have one object.
    """
    plain = name == "__init__" and all(field.default is not MISSING for field in fields(made))
    wanted = {"__init__"} if name == "__init__" else set(names) - {"__init__"}

    def write() -> Any:
        written = _write(made, name == "__init__", options)
        for each in wanted:
            if hasattr(vars(made).get(each), _WRITE):  # not replaced meanwhile
                setattr(made, each, written[each])
        return written[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal plain
        if plain and not args and not kwargs:
            plain = False
            for field in fields(made):
                object.__setattr__(self, field.name, field.default)
            return self.__post_init__() if hasattr(self, "__post_init__") else None
        return write()(self, *args, **kwargs)

    method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
    setattr(method, _WRITE, write)
    return method


_WRITE = "__write__"
"""Attribute of a method that is not written yet: its writer."""


class _Signature:
    """Descriptor ``__signature__``: writes ``__init__``, from which :mod:`inspect` reads it."""

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        for base in owner.__mro__:
            if hasattr(init := vars(base).get("__init__"), _WRITE):
                getattr(init, _WRITE)()
        raise AttributeError("__signature__")


_SIGNATURE = _Signature()


def _write(made: type[Any], init: bool, options: Mapping[str, bool]) -> Mapping[str, Any]:
    """Return ``__init__``, or all other methods, of a standard dataclass of the same fields."""
    names = {"__module__": __name__, "__qualname__": made.__qualname__, "__doc__": made.__doc__}
    if hasattr(made, "__post_init__"):
        names["__post_init__"] = ""  # only its presence counts: self's is called
    every = fields(made)
    twin = make_dataclass(
        made.__name__,
        [(field.name, field.type, field) for field in every],
        namespace=names,
        slots=init and not all(field.init for field in every),  # which lack a default on the class
        init=init,
        repr=not init and options["repr"],
        eq=not init and options["eq"],
        order=not init and options["order"],
        frozen=options["frozen"],
    )
    return vars(twin)


def _refuse_change(self: Any, name: str, value: object) -> None:
    """Raise FrozenInstanceError for a field, or for any name of an object of the class itself."""
    if _is_fixed(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_deletion(self: Any, name: str) -> None:
    """Raise FrozenInstanceError for a field, or for any name of an object of the class itself."""
    if _is_fixed(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_fixed(noun: Any, name: str) -> bool:
    """Return True if a name cannot be set: a plain class under a frozen one may add names."""
    return name in noun.__dataclass_fields__ or "__dataclass_fields__" in vars(type(noun))


def _state(self: Any) -> list[Any]:
    """Return the values of an object with slots that cannot change, to be pickled or copied."""
    return [getattr(self, field.name) for field in fields(self)]


def _restore(self: Any, values: list[Any]) -> None:
    for field, value in zip(fields(self), values, strict=True):
        object.__setattr__(self, field.name, value)
