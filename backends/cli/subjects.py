"""What a file is, told from its content: schedule, topology, XML program, plan, sketch …"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import BadFile, UnknownName, UserError, an, suggest
from weft.dsl.base.files import kind_of, parse_json, read_text
from weft.dsl.base.spans import Source

from .sketches import split_arguments
from .streams import is_stream

CLASSIC = "classic:"
"""What the name of a classic algorithm begins with."""


class Kind(StrEnum):
    """The nouns that a file can hold."""

    SCHEDULE = "schedule"
    TOPOLOGY = "topology"
    COLLECTIVE = "collective"
    ALGORITHM = "algorithm"
    PROGRAM = "program"
    XML = "msccl-xml"
    PLAN = "mscclpp-json"
    SCRIPT = "script"
    SKETCH = "sketch"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Subject:
    """A file's text, what it is, and its JSON where it has any.

    ``named`` is what the user wrote: for a topology perhaps with options after the path.
    """

    kind: Kind
    text: str
    where: str
    data: Any = None
    named: str = ""

    def schedule(self) -> Any:
        """The schedule in it, well formed but not verified."""
        from weft.dsl.nouns.schedule import load

        return load(self.data, self.where)

    def collective(self) -> Any:
        """The collective in it; a Python file describes one."""
        from weft.dsl.nouns.collective_json import load

        if self.data is None:
            from .inputs import collective_from

            return collective_from(self.where)
        return load(self.data, self.where)

    def library(self) -> Any:
        """The library in it; the files that it names are beside it."""
        from weft.dsl.nouns.library import load

        return load(self.data, self.where)

    def algorithm(self, *, in_place: bool | None = None) -> Any:
        """The algorithm that a Python file, or the one named in it, describes; or a classic."""
        if self.named.startswith(CLASSIC):
            from weft.synth.engines.classic.text import named_algorithm

            return named_algorithm(self.named, in_place=bool(in_place)).algorithm
        from weft.dsl.author.recipe import load

        return load(self.named, in_place=in_place)

    def machine(self) -> Any:
        """The machine for which a classic algorithm was named, if any."""
        if not self.named.startswith(CLASSIC):
            return None
        from weft.synth.engines.classic.text import named_algorithm

        return named_algorithm(self.named).topology

    def program(self) -> Any:
        """The program in it, well formed but not proved."""
        from weft.dsl.nouns.program import load

        return load(self.data, self.where)

    def refuse_plan(self, done: str) -> None:
        """Say what plans are not for, if this is one.

        Raises:
            UserError: it is.
        """
        if self.kind is Kind.PLAN:
            raise UserError(
                f"an MSCCL++ plan can be checked, run and shown, not {done}",
                where=self.where,
                hint="name the schedule, algorithm or program it was made from",
            )

    def refuse_library(self, done: str) -> None:
        """A library is many files.

        Raises:
            UserError: it is one.
        """
        if self.kind is Kind.LIBRARY:
            raise UserError(
                f"a library is not {done} as a whole",
                where=self.where,
                hint="name one of the files in its folder; `weft show` lists its plans",
            )

    def topology(self) -> Any:
        """The topology in it, whatever its format; a catalogue name names itself."""
        from weft.dsl.catalogue import imported, topology

        return imported(self.text, self.named) if self.text else topology(self.named)


def read_subject(text: str) -> Subject:
    """What a path, ``-`` or a name of the catalogue stands for.

    Raises:
        BadFile: no such file, or nothing that weft knows.
        UnknownName: neither a file nor a name.
    """
    if text != "-" and not _is_there(text):
        return _named(text)
    return _read(text, text)


def _read(path: str, named: str) -> Subject:
    """What is in a file that is there."""
    if is_stream(path):
        raise BadFile(
            "a stream of transfers, never held as a whole",
            where=path,
            hint="`weft show` prints its header, `weft check` replays it",
        )
    if path != "-" and is_library(path):
        from weft.dsl.nouns.library import MANIFEST

        path = str(Path(path) / MANIFEST)
    if path != "-" and os.path.isdir(path):  # False where it is closed
        raise _folder(Path(path))
    content = read_text(path)
    where = "<stdin>" if path == "-" else path
    if Path(path).suffix == ".py":
        return Subject(_python_kind(content, where), content, where, named=named)
    if re.match(r'\{"weft": *"log"', content):
        raise BadFile(
            "the log of a search",
            where=where,
            hint="weft show SCHEDULE --format html --log LOG draws it",
        )
    if re.match(r"\s*[\[{]", content):
        data = parse_json(content, where)
        return Subject(_json_kind(data, where), content, where, data, named)
    return Subject(_text_kind(content, where), content, where, named=named)


def _folder(path: Path) -> BadFile:
    """What a folder is that is no library, and what of it can be read."""
    from ..sweep.folder import MANIFEST, SCHEDULES

    if (path / MANIFEST).is_file():
        return BadFile(
            "the folder of a sweep",
            where=str(path),
            hint="the same `weft sweep` again prints its table; its schedules are in "
            f"{path / SCHEDULES}",
        )
    if (path / SCHEDULES).is_dir():
        return BadFile(
            "the folder of a library that has lost its manifest",
            where=str(path),
            hint="weft tune or weft resynth writes it anew",
        )
    files = sorted(file.name for file in path.glob("*.json"))
    hint = f"name one of its {len(files)} files, as {path / files[0]}" if files else ""
    return BadFile("a folder, where a file is needed", where=str(path), hint=hint or "name a file")


def is_library(path: str) -> bool:
    """Whether it is the folder of a library."""
    from weft.dsl.nouns.library import MANIFEST

    try:
        return (Path(path) / MANIFEST).is_file()
    except (OSError, ValueError):
        return False


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a folder that may not be entered: reading the file will say so
        return True


def _named(name: str) -> Subject:
    """A name of the catalogue of machines, of sketches or algorithms; or a path with options."""
    if name.startswith(CLASSIC):
        return Subject(Kind.ALGORITHM, "", name, named=name)
    if (python := _ALGORITHM.fullmatch(name)) and _is_there(python[1]):
        return Subject(Kind.ALGORITHM, read_text(python[1]), python[1], named=name)
    from weft.dsl.catalogue import file_of, names

    machines = tuple(entry.name for entry in names())
    if name.partition(":")[0] in machines:
        return Subject(Kind.TOPOLOGY, "", name, named=name)
    from weft.dsl.language.load import find_sketch, sketch_names

    sketches = tuple(sketch_names())
    plain = split_arguments(name)[0]
    if plain in sketches:
        found = find_sketch(plain)
        return Subject(Kind.SKETCH, found.text, found.name, named=name)
    if path := file_of(name):
        subject = _read(path, name)
        if subject.kind in (Kind.TOPOLOGY, Kind.SKETCH):
            return subject
        raise UserError(f"{an(subject.kind)} takes no options", where=name)
    if "/" in name or Path(name).suffix:
        raise BadFile("no such file", where=name)
    raise UnknownName("file or name", name, (*machines, *sketches))


_ALGORITHM = re.compile(r"(.+\.py)(?::\w*)?(?:\{.*\})?", re.DOTALL)
"""A Python file, perhaps with the name of an algorithm in it and its options."""


def _python_kind(content: str, where: str) -> Kind:
    """A script, or an algorithm if the file defines one; else it must describe a collective."""
    from ..formats.p2p.read import looks_like_script

    if looks_like_script(content):
        return Kind.SCRIPT
    from weft.dsl.author.python_file import run_python
    from weft.dsl.author.recipe import algorithms, nothing_in
    from weft.dsl.nouns.collective import Collective

    names = run_python(source := Source(where, content))
    if algorithms(source, names):
        return Kind.ALGORITHM
    if not isinstance(names.get("collective"), Collective):
        raise nothing_in(where)
    return Kind.COLLECTIVE


def _json_kind(data: Any, where: str) -> Kind:
    if isinstance(data, dict) and {"gpus", "collective"} <= data.keys():
        return Kind.PLAN
    if not isinstance(data, dict) or "weft" not in data:
        from weft.dsl.importers import IMPORT_SKETCH
        from weft.dsl.importers.taccl_sketch import looks_like_sketch

        if looks_like_sketch(data):
            raise BadFile("a TACCL sketch, in TACCL's JSON", where=where, hint=IMPORT_SKETCH)
        # TACCL's and edge-list topologies do not say what they are; their reader does.
        return Kind.TOPOLOGY
    kind = kind_of(data, where)
    if kind == "sweep":
        raise BadFile(
            "the rows of a sweep, not a question or an answer",
            where=where,
            hint="the same `weft sweep` again prints its table; its schedules are beside it",
        )
    known = (Kind.SCHEDULE, Kind.TOPOLOGY, Kind.COLLECTIVE, Kind.PROGRAM, Kind.LIBRARY)
    if kind not in known:
        raise BadFile(
            f"a weft file of unknown kind {kind!r}", where=where, hint=suggest(kind, known)
        )
    return Kind(kind)


def _text_kind(content: str, where: str) -> Kind:
    from weft.dsl.importers.smi_matrix import looks_like_matrix
    from weft.dsl.machines.host_file import looks_like_box

    from ..formats.p2p.read import looks_like_script

    if looks_like_script(content):
        return Kind.SCRIPT
    first = re.search(r"<\s*([A-Za-z_]\w*)", content)
    if content.lstrip("\ufeff \t\r\n").startswith("<") and first:
        return Kind.XML if first[1] == "algo" else Kind.TOPOLOGY
    body = re.sub(r"#[^\n]*", "", content)
    if re.match(r"\s*sketch\b", body):
        return Kind.SKETCH
    if looks_like_matrix(content) or looks_like_box(content):
        return Kind.TOPOLOGY
    if not body.strip():
        raise BadFile("the file is empty", where=where)
    raise BadFile(
        "neither a schedule, a topology, a collective, a sketch nor an XML program",
        where=where,
        hint='weft\'s JSON files say what they are in their key "weft"; a sketch starts with '
        "`sketch NAME`",
    )
