"""Recognition of files by their content: schedule, topology, artefact of a format, sketch …"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import BadFile, UnknownName, UserError, an, suggest
from weft.dsl.base.files import kind_of, looks_like_json, parse_json, read_text
from weft.dsl.base.foreign import refuse_foreign
from weft.dsl.base.spans import Source
from weft.dsl.base.spec import python_text
from weft.dsl.catalogue import file_of, is_cluster, names
from weft.dsl.importers.smi_matrix import looks_like_matrix
from weft.dsl.importers.taccl_sketch import looks_like_sketch
from weft.dsl.machines.host_file import looks_like_host
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.library import MANIFEST as LIBRARY_MANIFEST

from ...formats.format import own_kinds, recognized
from ...formats.recognition import gathered
from ...sweep.names import MANIFEST as SWEEP_MANIFEST
from ...sweep.names import SCHEDULES
from ..flags.values import split_arguments
from ..inputs.machines import is_library
from .noun import CLASSIC, FileKind, Noun, Subject
from .nouns import noun_of
from .program_noun import FormatNoun
from .streams import is_stream


def read_subject(text: str, also: Collection[FileKind] = ()) -> Subject:
    """Return the file or catalogue entry that a path, a name or ``-`` stands for.

    ``also``: kinds that only few verbs know: streams, and printed results.

    Raises:
        BadFile: no such file, or nothing that weft knows.
        UnknownName: neither a file nor a name.
    """
    if text != "-" and not _is_there(text):
        return _named(text)
    return _read(text, text, also)


def _read(path: str, named: str, also: Collection[FileKind] = ()) -> Subject:
    if is_stream(path):
        if FileKind.STREAM in also:
            return Subject(noun_of(FileKind.STREAM), "", path, named=named)
        raise BadFile(
            "a stream of transfers, never held as a whole",
            where=path,
            hint="`weft show` prints its header, `weft check` replays it",
        )
    if path != "-" and is_library(path):
        path = str(Path(path) / LIBRARY_MANIFEST)
    if path != "-" and os.path.isdir(path):  # False where its folder may not be entered
        raise _folder(Path(path))
    content = gathered(path) or read_text(path)
    where = "<stdin>" if path == "-" else path
    if re.match(r'\{"weft": *"log"', content):
        raise BadFile(
            "the log of a search",
            where=where,
            hint="weft show SCHEDULE --format html --log LOG draws it",
        )
    data, fault = None, None
    if Path(path).suffix != ".py" and looks_like_json(content):
        try:
            data = parse_json(content, where)
        except BadFile as error:
            fault = error
    if fault is None and FileKind.RESULT in also and path.endswith(".json") and is_results(data):
        return Subject(noun_of(FileKind.RESULT), content, where, data, named)
    noun = _noun(path, content, where, data, fault)
    return Subject(noun, content, where, data, named)


def _noun(path: str, content: str, where: str, data: Any, fault: BadFile | None) -> Noun:
    """Return the noun of a text: of weft's formats and nouns, or a plug-in's format."""
    if fault is None and (own := recognized(content, data)) is not None:
        return FormatNoun(own)
    kind = None if fault else _sure_kind(path, content, data, where)
    if kind is not None:
        if kind is FileKind.TOPOLOGY and data is None and content.lstrip().startswith("<"):
            refuse_foreign(content, where)
        return noun_of(kind)
    if (plugin := recognized(content, data, plugins=True)) is not None:
        return FormatNoun(plugin)
    if fault is not None:
        from weft.dsl.importers.nccl_tests import looks_like_nccl_tests  # an object a line

        if looks_like_nccl_tests(content):
            return noun_of(FileKind.TOPOLOGY)
        raise fault
    if Path(path).suffix == ".py":
        return noun_of(_python_kind(content, where))
    if data is not None:
        kind = _json_kind(data, where)
        if kind is FileKind.TOPOLOGY:
            refuse_foreign(content, where)
        return noun_of(kind)
    from weft.dsl.importers.recognized import is_topology  # all importers: 50 ms

    if is_topology(content):
        return noun_of(FileKind.TOPOLOGY)
    refuse_foreign(content, where)
    raise _unknown(content, where)


def _sure_kind(path: str, content: str, data: Any, where: str) -> FileKind | None:
    """Return the kind of a text that states its kind; None for other texts."""
    if Path(path).suffix == ".py":
        return None
    if data is None:
        return _text_kind(content)
    if isinstance(data, dict) and "weft" in data:
        kind = kind_of(data, where)
        return FileKind(kind) if kind in SAID else None
    return None


def _folder(path: Path) -> BadFile:
    """Return the error for a folder that is not a library, naming the readable files in it."""
    if (path / SWEEP_MANIFEST).is_file():
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
    hint = f"{hint}; weft show {path} lists them" if files else f"weft show {path} lists it"
    return BadFile("expected a file, got a directory", where=str(path), hint=hint or "name a file")


def is_plain_folder(path: str) -> bool:
    """Return True for a folder that is neither a library nor a stream, and may be entered."""
    return os.path.isdir(path) and not is_library(path) and not is_stream(path)


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a folder that may not be entered: reading the file will say so
        return True


def _named(name: str) -> Subject:
    """Return a catalogue entry (machine, sketch or algorithm), or a file given with options."""
    if name.startswith(CLASSIC):
        return Subject(noun_of(FileKind.ALGORITHM), "", name, named=name)
    if (python := python_text(name)) and _is_there(python[0]):
        return Subject(noun_of(FileKind.ALGORITHM), read_text(python[0]), python[0], named=name)
    machines = tuple(entry.name for entry in names())
    if name.partition(":")[0] in machines or is_cluster(name):
        return Subject(noun_of(FileKind.TOPOLOGY), "", name, named=name)
    from weft.dsl.language import load as sketch_files  # Lark takes 100 ms to load

    sketches = sketch_files.catalogue_names()
    plain = split_arguments(name)[0]
    if plain in sketches:
        found = sketch_files.find_sketch(plain)
        return Subject(noun_of(FileKind.SKETCH), found.text, found.name, named=name)
    if path := file_of(name):
        subject = _read(path, name)
        if subject.kind in (FileKind.TOPOLOGY, FileKind.SKETCH):
            return subject
        raise UserError(f"{an(subject.kind)} takes no options", where=name)
    if "/" in name or Path(name).suffix:
        raise BadFile("no such file", where=name)
    raise UnknownName("file or name", name, (*machines, *sketches))


def _python_kind(content: str, where: str) -> FileKind:
    """Return ALGORITHM if a Python file defines one; otherwise it must describe a collective."""
    from weft.dsl.author.python_file import run_python  # only a user's Python file needs these
    from weft.dsl.author.recipe import algorithms, nothing_in

    names = run_python(source := Source(where, content))
    if algorithms(source, names):
        return FileKind.ALGORITHM
    if not isinstance(names.get("collective"), Collective):
        raise nothing_in(where)
    return FileKind.COLLECTIVE


SAID = (
    FileKind.SCHEDULE,
    FileKind.TOPOLOGY,
    FileKind.COLLECTIVE,
    FileKind.LIBRARY,
    FileKind.WORKLOAD,
    FileKind.PLAN,
)
"""Kinds that files name in their key ``weft``."""


def _json_kind(data: Any, where: str) -> FileKind:
    if not isinstance(data, dict) or "weft" not in data:
        if looks_like_sketch(data):
            from weft.dsl.importers.recognized import IMPORT_SKETCH  # all importers: 50 ms

            raise BadFile("a TACCL sketch, in TACCL's JSON", where=where, hint=IMPORT_SKETCH)
        if is_results(data):
            hint = (
                "`weft show` prints it, and draws it with --format html; `weft diff` compares two"
            )
            told = "expected a file of weft's, got the output of `--json`"
            raise BadFile(told, where=where, hint=hint)
        from weft.dsl.importers.workloads.read import of_another_tool  # all formats of workloads

        if of_another_tool(data):
            return FileKind.WORKLOAD
        # TACCL's and edge-list topologies do not state their kind; their readers recognize them.
        return FileKind.TOPOLOGY
    kind = kind_of(data, where)
    if kind == "sweep":
        raise BadFile(
            "the rows of a sweep, not a question or an answer",
            where=where,
            hint="the same `weft sweep` again prints its table; its schedules are beside it",
        )
    raise BadFile(
        f"a weft file of unknown kind {kind!r}",
        where=where,
        hint=suggest(kind, (*SAID, *own_kinds())),
    )


def is_results(data: Any) -> bool:
    """Return True if JSON is the output of ``bench``, ``run``, ``simulate`` or ``bound``."""
    return isinstance(data, dict) and "weft" not in data and isinstance(data.get("sizes"), list)


def _text_kind(content: str) -> FileKind | None:
    """Return the kind of a text that is not JSON; None where it is unknown."""
    if content.lstrip("\ufeff \t\r\n").startswith("<") and re.search(
        r"<\s*([A-Za-z_]\w*)", content
    ):
        return FileKind.TOPOLOGY
    if re.match(r"\s*sketch\b", _uncommented(content)):
        return FileKind.SKETCH
    from weft.dsl.importers.workloads.read import text_form  # all formats of workloads

    if text_form(content) is not None:
        return FileKind.WORKLOAD
    if looks_like_matrix(content) or looks_like_host(content):
        return FileKind.TOPOLOGY
    return None


def _uncommented(content: str) -> str:
    return re.sub(r"#[^\n]*", "", content)


def _unknown(content: str, where: str) -> BadFile:
    if not _uncommented(content).strip():
        return BadFile("the file is empty", where=where)
    return BadFile(
        "neither a schedule, a topology, a collective, a sketch nor an XML program",
        where=where,
        hint='weft\'s JSON files say what they are in their key "weft"; a sketch starts with '
        "`sketch NAME`",
    )
