"""``name{option=value}`` and frozen dataclasses: one parser for engines, passes and backends.

The fields of the dataclass are the options, so ``exact{solver=z3,steps=3}`` on the command line,
``Exact(solver="z3", steps=3)`` in Python and the text in a schedule's provenance are one thing.
Values follow the field's type: integers, floats, exact rationals, ``true``/``false``, enums,
``none`` where it is allowed, and tuples written ``a+b+c``. A value may hold a spec itself. Where a
field's default is a dataclass, its fields are options too, with the name of the field before them:
``greedy{effort.passes=64}``.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Packing:
...     trees: int = 1
...     max_height: int | None = None
>>> build(parse_spec("packing{trees=4, max-height=3}"), Packing)
Packing(trees=4, max_height=3)
>>> format_spec(Packing(trees=4), "packing")
'packing{trees=4}'
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import SyntaxProblem, UnknownName, UserError
from .lazy_dataclass import Frozen
from .spans import Source, Span

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


class Option(Frozen):
    """One ``key=value`` of a spec, and where each of the two was written."""

    key: str
    value: str
    key_span: Span
    value_span: Span


class Spec(Frozen):
    """A name and its options, as written."""

    name: str
    options: tuple[Option, ...]
    span: Span

    def __str__(self) -> str:
        inside = ",".join(f"{o.key}={o.value}" for o in self.options)
        return f"{self.name}{{{inside}}}" if inside else self.name


def parse_spec(text: str, origin: str = "spec") -> Spec:
    """Parse one spec; ``origin`` names the text in errors (``--engine``).

    Raises:
        SyntaxProblem: not of the form ``name{option=value,…}``, with a caret.
    """
    return spec_at(Span(Source(origin, text), 0, len(text)))


def spec_at(span: Span) -> Spec:
    """Parse one spec within a longer text; errors as :func:`parse_spec`."""
    parts = split(span)
    if len(parts) != 1:
        raise SyntaxProblem("one name is expected here, not a list", where=parts[1].strip())
    return _parse_one(parts[0].strip())


def parse_specs(text: str, origin: str = "spec") -> tuple[Spec, ...]:
    """Parse a list of specs: ``channels,threadblocks{policy=auto},fuse``.

    Raises:
        SyntaxProblem: as :func:`parse_spec`.
    """
    source = Source(origin, text)
    return tuple(_parse_one(part.strip()) for part in split(Span(source, 0, len(text))))


def _parse_one(span: Span) -> Spec:
    match = _NAME.match(span.text)
    if match is None:
        raise SyntaxProblem("a name is expected here", where=span, hint=_FORM)
    name, rest = match.group(), span.part(match.end(), len(span.text)).strip()
    if not rest.text:
        return Spec(name, (), span)
    if not (rest.text.startswith("{") and rest.text.endswith("}")):
        raise SyntaxProblem("options are written in braces", where=rest, hint=_FORM)
    inside = rest.part(1, len(rest.text) - 1).strip()
    items = [Item.of(part.strip()) for part in split(inside)] if inside.text else []
    options = tuple(map(_parse_option, items))
    for i, option in enumerate(options):
        if any(option.key == before.key for before in options[:i]):
            raise SyntaxProblem(f"option {option.key!r} is given twice", where=option.key_span)
    return Spec(name, options, span)


_FORM = "write name{option=value,option=value}"


def _parse_option(item: Item) -> Option:
    key, value = item.key.strip() if item.key else None, item.value.strip()
    if key is None or not _NAME.fullmatch(key.text):
        raise SyntaxProblem("an option is written option=value", where=item.span, hint=_FORM)
    return Option(key.text, value.text, key, value)


# --- the tokens of every text that is a name with options -----------------------------------------


class Item(Frozen):
    """One item of a list of options: the two sides of its first ``=``; no key where it has none."""

    span: Span
    key: Span | None
    value: Span

    @staticmethod
    def of(span: Span) -> Item:
        """Split an item; white space stays."""
        text = span.text
        before, equals, _ = text.partition("=")
        if not equals:
            return Item(span, None, span)
        return Item(span, span.part(0, len(before)), span.part(len(before) + 1, len(text)))


def split(span: Span, separator: str = ",", *, braces: bool = True) -> list[Span]:
    """Split a list at its separators, with ``braces`` only at those outside; white space stays.

    Raises:
        SyntaxProblem: a brace closes nothing or is never closed.
    """
    text, parts, depth, start = span.text, [], 0, 0
    for i, ch in enumerate(text):
        depth += braces * ((ch == "{") - (ch == "}"))
        if depth < 0:
            raise SyntaxProblem("unmatched closing brace", where=span.part(i, i + 1))
        if ch == separator and depth == 0:
            parts.append(span.part(start, i))
            start = i + 1
    if depth:
        opened = span.part(text.rfind("{"), text.rfind("{") + 1)
        raise SyntaxProblem("this brace is never closed", where=opened, hint=_FORM)
    return [*parts, span.part(start, len(text))]


_PYTHON = re.compile(r"(?P<file>.+\.py)(?::(?P<name>\w*))?(?P<options>\{.*\})?", re.DOTALL)


def require_data(text: str, where: str, flag: str) -> None:
    """Require that a text of a file does not name a Python file: data must not select code.

    Raises:
        UserError: it does; ``flag`` is the option that may name one.
    """
    if re.search(r"\.py\b", text):
        raise UserError(
            f"expected data, got the Python code {text!r}",
            where=where,
            hint=f"type {flag} if you know what it does",
        )


def python_text(text: str) -> tuple[str, str, str] | None:
    """Split ``FILE.py``, ``FILE.py:NAME`` or ``FILE.py:NAME{options}``; None for other texts.

    The options keep their braces; a part that is left out is empty.
    """
    match = _PYTHON.fullmatch(text)
    return (match["file"], match["name"] or "", match["options"] or "") if match else None


def python_parts(text: str) -> tuple[str, str, str]:
    """Split any text as :func:`python_text` does; options of other texts begin at the first ``{``.

    So the reader of the parts reports a brace that is never closed, or another extension.
    """
    if found := python_text(text):
        return found
    head, brace, tail = text.partition("{")
    file, colon, name = head.rpartition(".py:")
    return (f"{file}.py" if colon else head, name if colon else "", brace + tail)


_COLON = re.compile(r"(?P<name>.+?):(?P<options>\w+=[^:/]*)")


def colon_text(text: str, origin: str) -> tuple[str, Span | None]:
    """Split ``NAME:option=value,…`` into the name and the span of the options (None: no options).

    ``origin`` names the text in errors (``--sketch``).
    """
    match = _COLON.fullmatch(text)
    if match is None:
        return text, None
    return match["name"], Span(Source(origin, text), match.start("options"), len(text))


# --- to and from dataclasses ----------------------------------------------------------------------


def options_of(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The options of a class by the name they are written with (hyphens for underscores).

    Without those of :func:`groups_of`.
    """
    return {f.name.replace("_", "-"): f for f in _fields(cls) if _group(f) is None}


def needed_options(cls: type[Any]) -> tuple[str, ...]:
    """The options of a class without a default, so that each spec must give them."""
    return tuple(name for name, field in options_of(cls).items() if not _has_default(field))


def groups_of(cls: type[Any]) -> dict[str, type[Any]]:
    """The fields of a class that are dataclasses of options themselves, by name: their classes."""
    return {f.name: group for f in _fields(cls) if (group := _group(f)) is not None}


def _fields(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(cls) if f.init] if dataclasses.is_dataclass(cls) else []


def _group(field: dataclasses.Field[Any]) -> type[Any] | None:
    default = _default(field)
    missing = default is dataclasses.MISSING
    return type(default) if not missing and dataclasses.is_dataclass(default) else None


class OptionText(Frozen):
    """Description of an option: its name as written, its default as text, its meaning."""

    name: str
    default: str | None
    doc: str


def option_texts(cls: type[Any]) -> list[OptionText]:
    """Return all options of a class, those of groups with dots in their names.

    The meaning is the field's metadata ``doc``, its entry in the list ``Options:`` of the class's
    docstring, or, where there is neither, the values that it takes.
    """
    told, kinds = _documented(cls), get_type_hints(cls)
    found = []
    for key, field in options_of(cls).items():
        default = text_of(_default(field)) if _has_default(field) else None
        doc = str(field.metadata.get("doc") or told.get(field.name) or _noun(kinds[field.name]))
        found.append(OptionText(key, default, doc.rstrip(".")))
    for name, group in groups_of(cls).items():
        found += [dataclasses.replace(o, name=f"{name}.{o.name}") for o in option_texts(group)]
    return found


def _documented(cls: type[Any]) -> dict[str, str]:
    """The entries of the list ``Options:`` in a docstring, by name, each on one line."""
    _, _, listed = (inspect.getdoc(cls) or "").partition("Options:\n")
    entries: dict[str, str] = {}
    name = ""
    for line in listed.splitlines():
        if not line.startswith("    "):  # the list is over
            break
        match = _ENTRY.match(line)
        if match:
            name = match[1]
            entries[name] = match[2]
        elif name:
            entries[name] += " " + line.strip()
    return entries


_ENTRY = re.compile(r"    ([a-z_]+): (.*)")


def build(spec: Spec, cls: type[T]) -> T:
    """Return the instance of a dataclass that a spec describes.

    Raises:
        UnknownName: an option it does not have; suggests the nearest.
        UserError: a value of the wrong type, or a required option left out.
    """
    known = _known(cls)
    values: dict[str, Any] = {}  # of a group: a dict of its own
    for option in spec.options:
        key = option.key.replace("_", "-")
        if key not in known:
            raise UnknownName(f"option of {spec.name}", option.key, known, where=option.key_span)
        groups, owner, field = known[key]
        into = values
        for name in groups:
            into = into.setdefault(name, {})
        into[field.name] = _given(spec, option, get_type_hints(owner)[field.name])
    known_fields = options_of(cls)
    for name in needed_options(cls):
        if known_fields[name].name not in values:
            raise UserError(
                f"{spec.name} needs the option {name!r}",
                where=spec.span,
                hint=f"write {spec.name}{{{name}=…}}",
            )
    return _made(cls, values, spec)


def _known(cls: type[Any]) -> dict[str, tuple[tuple[str, ...], type[Any], dataclasses.Field[Any]]]:
    """All options by the names they are written with: the groups they are in, class, field."""
    found: dict[str, tuple[tuple[str, ...], type[Any], dataclasses.Field[Any]]] = {
        key: ((), cls, field) for key, field in options_of(cls).items()
    }
    for name, group in groups_of(cls).items():
        for key, (inner, owner, field) in _known(group).items():
            found[f"{name.replace('_', '-')}.{key}"] = ((name, *inner), owner, field)
    return found


def _given(spec: Spec, option: Option, kind: Any) -> Any:
    """The value of an option; a UserError names the type that it must have."""
    try:
        return _value(option.value, kind)
    except ValueError as error:
        raise UserError(
            f"{spec.name}: {option.key} must be {error}, not {option.value!r}",
            where=option.value_span,
        ) from None


def _made(cls: type[T], values: dict[str, Any], spec: Spec) -> T:
    groups = groups_of(cls)
    values = {k: _made(groups[k], v, spec) if k in groups else v for k, v in values.items()}
    try:
        return cls(**values)
    except UserError as error:
        error.where = error.where or spec.span
        raise


def format_spec(instance: Any, name: str | None = None) -> str:
    """Return the text that :func:`build` reads back: options that differ from their default."""
    parts = _changed(instance)
    label = name or str(instance.name)
    return f"{label}{{{','.join(parts)}}}" if parts else label


def _changed(instance: Any) -> list[str]:
    """``key=value`` of every option that differs from its default, those of groups last."""
    parts = [
        f"{key}={text_of(getattr(instance, field.name))}"
        for key, field in options_of(type(instance)).items()
        if not _has_default(field) or getattr(instance, field.name) != _default(field)
    ]
    for group in groups_of(type(instance)):
        parts += [f"{group}.{part}" for part in _changed(getattr(instance, group))]
    return parts


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def text_of(value: Any) -> str:
    """Return the text of an option's value as a spec has it: ``true``, ``none``, ``a+b``."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | frozenset):
        return "+".join(map(text_of, sorted(value) if isinstance(value, frozenset) else value))
    return "none" if value is None else str(value)


def _value(text: str, kind: Any) -> Any:
    """A value of a type annotation; ValueError names the type that it must have."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union(text, get_args(kind))
    if origin is Literal:
        return _choice(text, {str(v): v for v in get_args(kind)})
    if origin is tuple:
        item = get_args(kind)[0]
        parts = split(Span(Source("value", text), 0, len(text)), "+")  # a+b{c=1+2} at the outer +
        return tuple(_value(plain, item) for part in parts if (plain := part.text.strip()))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice(text, {str(member.value): member for member in kind})
    if kind is bool:
        return _boolean(text)
    if kind in (int, float, Fraction):
        return _number(text, kind)
    if dataclasses.is_dataclass(kind):
        raise ValueError("set in Python")
    if not text:
        raise ValueError("a text")
    return text


def _noun(kind: Any) -> str:
    """The values of a type annotation in words: ``an integer or none``, ``one of a, b``."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join("none" if k is type(None) else _noun(k) for k in get_args(kind))
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if origin is tuple:
        return f"{_noun(get_args(kind)[0])}, or several joined by +"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(member.value) for member in kind)}"
    return _NOUNS.get(kind, "set in Python" if dataclasses.is_dataclass(kind) else "a text")


_NOUNS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    Fraction: "a number such as 7/6",
}


def _union(text: str, kinds: tuple[Any, ...]) -> Any:
    if type(None) in kinds and text.lower() == "none":
        return None
    wanted = [k for k in kinds if k is not type(None)]
    reasons = []
    for kind in wanted:
        try:
            return _value(text, kind)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError(" or ".join(reasons))


def _choice(text: str, known: dict[str, Any]) -> Any:
    if text not in known:
        raise ValueError(f"one of {', '.join(known)}")
    return known[text]


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(_NOUNS[bool])


def _number(text: str, kind: type[Any]) -> Any:
    noun = _NOUNS[kind]
    if len(text) > 64 or re.search(r"[eE][+-]?\d{4,}", text):
        raise ValueError(f"{noun} of a sensible size")
    try:
        value = kind(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(noun) from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{noun} that is finite")
    return value
