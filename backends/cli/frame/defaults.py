"""Defaults of options from ``weft.toml``, or ``[tool.weft]`` in ``pyproject.toml``.

The nearest file upward from the current folder counts, and no other; it is sought as far as the
root of the repository or the home folder, and only in folders that belong to the user::

    topology = "dgx1"        # for every verb that has the option
    [synth]
    effort = 5
    [topo.list]
    json = true

A machine and a collective for every verb are left out where a file states them (``weft bound
FILE``, ``weft run FILE``). Defaults become words of the command line, so that they are read as
typed ones are; an option that is typed leaves its default out. A repository that was only fetched
may bring such a file: it cannot name an output, a Python file, or a cluster to talk to.
"""

from __future__ import annotations

import os
import re
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError, suggest
from weft.dsl.base.files import parse_toml, read_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spec import require_data

from ..output.console import Console
from .parser import Parser, VerbParser

VARIABLE = "WEFT_CONFIG"
"""Environment variable: the file instead of the nearest one; empty: none."""

NEVER = ("--help", "--version", "--server")

TYPED_ONLY = ("output", "force", "cache", "cluster", "preload")
"""Options that a file may not set, beside those that name an output: they decide which files are
written, which sources are trusted, and what is loaded into other programs."""

PROBLEM = ("topology", "group", "collective", "root", "roots")
"""Options whose value a file on the command line may give, too."""


@dataclass(frozen=True, slots=True)
class TakenDefaults:
    """Defaults that a command line was given, by option, and the file that has them."""

    file: str
    options: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"file": self.file, "options": dict(self.options)}


def defaults_words() -> str:
    """Return the file of defaults that counts here, and its options, in words.

    Raises:
        UserError: it is not TOML.
    """
    unread: list[str] = []
    found = _settings(unread)
    if found is None and unread:
        return f"none: {unread[0]}"
    if found is None:
        return "none: no weft.toml, and no [tool.weft], here or above"
    keys = ", ".join(
        f"[{key}]" if isinstance(value, Mapping) else f"{key}={value}"
        for key, value in found.table.items()
    )
    return f"{found.path}: {keys or 'nothing'}"


def with_defaults(
    parser: Parser, arguments: Sequence[str], console: Console
) -> tuple[list[str], TakenDefaults | None]:
    """Return a command line with the defaults of its verb, and those that were taken; say which.

    Raises:
        UserError: the file is not TOML, or has an unknown option or a wrong value; with its line.
    """
    if {"-h", *NEVER} & set(arguments):
        return list(arguments), None
    unread: list[str] = []
    found = _settings(unread)
    for text in unread:
        console.warn(text)
    if found is None:
        return list(arguments), None
    verbs, of_verb = _verb(parser, arguments)
    typed = arguments[len(verbs) :]
    given = {
        key: values
        for key, (action, values) in found.for_verb(parser, verbs, of_verb).items()
        if values and not _typed(action, typed)
    }
    if _has_file(of_verb, [*chain(*given.values()), *typed]):
        own = found.section(verbs)
        given = {key: words for key, words in given.items() if key in own or key not in PROBLEM}
    if given:
        told = ", ".join(f"{key}={found.value(verbs, key)}" for key in given)
        console.say("Defaults", f"{told} ({found.path})")
    taken = TakenDefaults(found.path, {key: found.value(verbs, key) for key in given})
    return [*verbs, *chain(*given.values()), *typed], taken if given else None


@dataclass(frozen=True, slots=True)
class _Settings:
    """A file, its text and the table of defaults in it."""

    path: str
    text: str
    table: Mapping[str, Any]

    def section(self, verbs: Sequence[str]) -> Mapping[str, Any]:
        """Return the table of a verb; {} without one."""
        table = self.table
        for verb in verbs:
            table = table.get(verb, {})
            if not isinstance(table, Mapping):
                raise self.wrong(verb, f"{verb!r} is a verb: a table of its options is expected")
        return table

    def value(self, verbs: Sequence[str], key: str) -> Any:
        """Return a default: that of the verb before that of all."""
        return self.section(verbs).get(key, self.table.get(key))

    def for_verb(
        self, parser: Parser, verbs: Sequence[str], of_verb: ArgumentParser
    ) -> dict[str, tuple[Action, list[str]]]:
        """Return the options that have a default, each with its words on the command line."""
        options = _options(of_verb)
        given: dict[str, tuple[Action, list[str]]] = {}
        for key in self._keys(parser, verbs, options):
            action = options[key]
            given[key] = (action, self._words(of_verb, action, key, self.value(verbs, key)))
        return given

    def _keys(
        self, parser: Parser, verbs: Sequence[str], options: Mapping[str, Action]
    ) -> list[str]:
        """Return the options of this verb that are named, with all names tested."""
        inner = {key for key, value in self.section(verbs).items() if not isinstance(value, dict)}
        for key in sorted(inner - set(options)):
            raise self.wrong(
                key, f"weft {' '.join(verbs)} has no option --{key}", suggest(key, options)
            )
        outer = {key for key, value in self.table.items() if not isinstance(value, dict)}
        if unknown := outer - set(options):
            everywhere = _all_options(parser)
            for key in sorted(unknown - everywhere):
                raise self.wrong(key, f"no verb has an option --{key}", suggest(key, everywhere))
        tables = set(self.table) - outer
        (subparsers,) = _subparsers(parser)
        for key in sorted(tables - set(subparsers.choices)):
            raise self.wrong(key, f"expected a verb, got [{key}]", suggest(key, subparsers.choices))
        return [key for key in options if key in inner | outer]

    def _words(self, of_verb: ArgumentParser, action: Action, key: str, value: Any) -> list[str]:
        option = f"--{key}"
        if key in TYPED_ONLY or getattr(action, "writes", False):
            raise self.wrong(key, f"{option} is not read from a file", f"type {option}, or {_OFF}")
        if action.nargs == 0:
            many = type(action).__name__ == "_CountAction" and type(value) is int
            if not many and not isinstance(value, bool):
                raise self.wrong(key, f"{option} takes no value: true or false is expected")
            return [option] * int(value)
        several = isinstance(value, list)
        if several and type(action).__name__ not in ("_AppendAction", "_ExtendAction"):
            raise self.wrong(key, f"{option} takes one value, not a list")
        words = []
        for one in value if several else [value]:
            if not isinstance(one, str | int | float) or isinstance(one, bool):
                raise self.wrong(key, f"{option} takes a text or a number, not {one!r}")
            try:
                require_data(str(one), self.path, option)
                of_verb._check_value(action, of_verb._get_value(action, str(one)))
            except UserError as error:
                raise self.wrong(key, f"{option}: {error.message}", error.hint) from None
            words.append(f"{option}={one}")
        return words

    def wrong(self, key: str, message: str, hint: str | None = None) -> UserError:
        """Return an error with the file and the line of a key."""
        named = re.compile(rf"^\s*(\[(tool\.weft\.)?)?{re.escape(key)}\b")
        lines = [at for at, line in enumerate(self.text.splitlines(), 1) if named.match(line)]
        where = f"{self.path}:{lines[0]}" if lines else self.path
        return UserError(message, where=where, hint=hint or _OFF)


_OFF = f"{VARIABLE}= (empty) ignores the file"


def _settings(unread: list[str]) -> _Settings | None:
    """Return the settings that count here; say in ``unread`` which file is another user's."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return _read(Path(named)) if named else None
    for folder in _searched():
        for name in ("weft.toml", "pyproject.toml"):
            path = folder / name
            if not os.path.isfile(path) or (name != "weft.toml" and not _mentions_weft(path)):
                continue
            if not (_is_ours(folder) and _is_ours(path)):
                hint = f"{VARIABLE}={path} reads it"
                unread.append(f"{path} is not read: it, or its folder, is another user's; {hint}")
            else:
                return _read(path)
    return None


def _searched() -> Iterator[Path]:
    """Yield the folders from this one upward: to the first that is another user's, the root of a
    repository, or the home folder."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return
    for folder in (here, *here.parents):
        yield folder
        if not _is_ours(folder) or (folder / ".git").exists() or folder == Path.home():
            return


def _is_ours(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _read(path: Path) -> _Settings:
    """Return the settings of a file; an empty table if ``[tool.weft]`` is not there."""
    text = read_text(path)
    table: Any = parse_toml(text, str(path))
    for key in ("tool", "weft") if path.name == "pyproject.toml" else ():
        table = table.get(key, {}) if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping):
        raise UserError("[tool.weft] is not a table", where=str(path))
    return _Settings(str(path), text, table)


def _mentions_weft(path: Path) -> bool:
    try:
        return b"tool.weft" in path.read_bytes()
    except OSError:  # another tool's file, and not ours to complain about
        return False


def _verb(parser: ArgumentParser, arguments: Sequence[str]) -> tuple[list[str], ArgumentParser]:
    """Return the verbs at the start of a command line, and the parser of the last one."""
    verbs = []
    for word in arguments:
        found = [x.choices[word] for x in _subparsers(parser) if word in x.choices]
        if not found:
            break
        verbs.append(word)
        parser = found[0]
        if isinstance(parser, VerbParser):
            parser.configure()
    return verbs, parser


def _has_file(of_verb: ArgumentParser, words: Sequence[str]) -> bool:
    places = [action for action in of_verb._actions if not action.option_strings]
    if all(action.nargs in ("?", "*") for action in places):
        try:
            read, _ = of_verb.parse_known_args(list(words))
        except UserError:  # reported when the whole line is read
            return False
        return any(getattr(read, action.dest) for action in places)
    return True


def _subparsers(parser: ArgumentParser) -> list[_SubParsersAction[Any]]:
    return [action for action in parser._actions if isinstance(action, _SubParsersAction)]


def _options(parser: ArgumentParser) -> dict[str, Action]:
    """Return the options of a parser by their long names, without the dashes."""
    return {
        name[2:]: action
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--") and name not in NEVER
    }


def _all_options(parser: ArgumentParser) -> set[str]:
    found = set(_options(parser))
    for verbs in _subparsers(parser):
        for one in verbs.choices.values():
            if isinstance(one, VerbParser):
                one.configure()
            found |= _all_options(one)
    return found


def _typed(action: Action, words: Sequence[str]) -> bool:
    """Return True if an option stands among words: ``--size 1MiB``, ``--size=1MiB``, ``-tdgx1``."""
    for name in action.option_strings:
        for word in words:
            short = not name.startswith("--") and not word.startswith("--")
            if word == name or word.startswith(name if short else f"{name}="):
                return True
    return False
