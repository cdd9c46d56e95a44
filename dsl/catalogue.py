"""Machines by name: from the catalogue, a file of any known format, or standard input.

>>> topology("ring:4").ranks, topology("torus:4x4,bw=50GB/s").name
(4, 'torus:4x4,bw=50GB/s')
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .base.errors import BadFile, UnknownName, UserError, require_type
from .base.files import read_text
from .base.lazy_dataclass import Frozen
from .base.spans import Source
from .importers.origin import OF_ANY
from .machines.confined import in_hosts
from .machines.fabric_links import asked_fabric
from .machines.failures import FLAG, capable, find, nic_down, split_capable, without
from .machines.families import FAMILIES
from .machines.host_file import host_names, load_host
from .machines.hosts import HostTemplate, cluster, host_of, of_host, synopsis
from .machines.spec import MachineSpec, OptionValue, parse_options, parse_spec
from .nouns.topology import Topology

if TYPE_CHECKING:
    from .importers.taccl_sketch import TacclSketch


class CatalogueEntry(Frozen):
    """A catalogue entry: name, syntax, description."""

    name: str
    synopsis: str
    summary: str


def names() -> tuple[CatalogueEntry, ...]:
    """Return all entries of the catalogue: families first, then machines."""
    families = tuple(CatalogueEntry(f.name, f.synopsis, f.summary) for f in FAMILIES)
    hosts = map(load_host, host_names())
    return (*families, *(CatalogueEntry(b.name, synopsis(b), b.title) for b in hosts))


def topology(text: str | os.PathLike[str]) -> Topology:
    """Return the machine that a text names.

    A catalogue name with options (``dgx-a100:nodes=4``), a path with options of its importer
    (``topo.xml:nodes=4``), hosts of several kinds (``a.txt*3+b.txt*2:fabric=rails``), or ``-`` for
    standard input. ``dead=0-1`` is accepted by all of them:
    the cables between two nodes are broken, in both directions (see :mod:`.failures` for other
    failures). So are ``without=mlx5_4``: NICs that are left out, ``family=h100``: whose numbers
    the times of programs are made of, and ``capable=rail0:multicast+reduces``: the
    capabilities of a switch.

    Raises:
        UnknownName: no such machine or option. UserError: an invalid value.
        BadFile: a file that cannot be read. BadTopology: an invalid machine.
    """
    path = os.fspath(text) if isinstance(text, os.PathLike) else text
    text = require_type(path, str, "topology", 'weft.topology("dgx1")').strip()
    if terms := _terms(text):
        return _cluster(text, terms)
    name = text.partition(":")[0]
    if name in _known():
        spec = parse_spec(text)
        return _finished(_from_catalogue(spec), spec)
    path, _ = _file_spec(text)
    return imported(read_text(path), text)


def imported(content: str, text: str) -> Topology:
    """Return the machine that a file describes; ``text`` is its path with importer options.

    Raises:
        As :func:`topology`.
    """
    from .importers.recognized import read_any  # all importers: 50 ms

    path, spec = _file_spec(text.strip())
    return _finished(read_any(content, "<stdin>" if path == "-" else path, spec), spec)


def kept(made: Topology, content: str, text: str) -> dict[str, Any]:
    """Return the JSON of an imported machine with its text, for machines of more such hosts.

    ``content`` and ``text`` as for :func:`imported`.
    """
    if content.lstrip("\ufeff \t\r\n").startswith("{"):
        return made.to_json()
    given = _file_spec(text.strip())[1].options.items()
    options = ",".join(f"{key}={','.join(value.text for value in found)}" for key, found in given)
    origin = {"text": content, "options": options, "digest": made.digest()}
    return made.to_json() | {"imported": origin}


def paired(content: str, text: str, sketch: TacclSketch, *, split: bool = False) -> Topology:
    """Return the machine that a TACCL topology file and a TACCL sketch describe together.

    ``content`` and ``text`` as for :func:`imported`; ``split``: divide NICs as TACCL does.

    Raises:
        As :func:`topology`.
    """
    from .importers.taccl import read_pair  # only a TACCL sketch needs it

    path, spec = _file_spec(text.strip())
    where = "<stdin>" if path == "-" else path
    return _finished(read_pair(content, where, spec, sketch, split=split), spec)


def is_cluster(text: str) -> bool:
    """Return True for a text that adds hosts up: ``a.txt*3+b.txt*2``."""
    return bool(_terms(text.strip()))


def file_of(text: str) -> str | None:
    """Return the path in a text with or without options if it exists; ``-`` always does.

    Raises:
        BadFile: it is a link to nothing, or to itself.
    """
    return next((path for path, _ in _splits(text) if _is_there(path)), None)


_CAPABLE = re.compile(r"(?<=[:,])capable=[^=]*(?=,[^,=]+=|$)")


def with_options(text: str, options: str) -> str:
    """Return the text of a machine with further options."""
    path = file_of(text)
    has_options = ":" in text if path is None else len(text) > len(path)
    return f"{text}{',' if has_options else ':'}{options}"


def with_capable(machine: str, asked: Sequence[str]) -> str:
    """Return the text of a machine with the option ``capable=`` of ``rail0=multicast+reduces``.

    Entries of the text itself stand before, so that the later one holds for a switch of both.

    Raises:
        UserError: a text without a switch or without words.
    """
    texts = [one for text in asked for one in text.split(",")]
    pairs = [split_capable(text, FLAG) for text in texts]
    added = ",".join(f"{name}:{able}" for name, able in pairs)
    told = _CAPABLE.search(machine)
    if told is not None:
        return f"{machine[: told.end()]},{added}{machine[told.end() :]}"
    return with_options(machine, f"capable={added}")


def _is_there(path: str) -> bool:
    if path == "-" or os.path.exists(path):
        return True
    if os.path.islink(path):
        raise BadFile("a link that leads nowhere", where=path)
    return False


def _finished(made: Topology, spec: MachineSpec) -> Topology:
    """Return the machine without its dead cables; raise if options were not used."""
    gone = [find(made, value.text, value.span) for value in spec.words("dead")]
    for down, value in zip(gone, spec.words("dead"), strict=True):
        if down.ranks:  # its removal would renumber ranks
            raise UserError(
                f"dead= breaks cables, NICs and switches, and {down.name} is a rank",
                where=value.span,
                hint="--down-rank, or --group, leaves ranks out",
            )
    if "without" not in spec.known:  # else the importer has left them out
        gone += [nic_down(made, value.text, value.span) for value in spec.words("without")]
    if gone:
        made = without(made, {link for down in gone for link in down.links})
    if spec.words("capable"):
        made = capable(made, [(value.text, value.span) for value in spec.words("capable")])
    family, _ = spec.word("family", made.timing.family)
    if family != made.timing.family:
        made = replace(made, timing=replace(made.timing, family=family))
    spec.finish()
    return made


def _known() -> tuple[str, ...]:
    return (*(f.name for f in FAMILIES), *host_names())


def _from_catalogue(spec: MachineSpec) -> Topology:
    for family in FAMILIES:
        if family.name == spec.name:
            return family.build(spec)
    return of_host(load_host(spec.name), spec)


def _file_spec(text: str) -> tuple[str, MachineSpec]:
    for path, start in _splits(text):
        if _is_there(path):
            return path, parse_options(path, Source("topology", text), start)
    name = text.partition(":")[0]
    if os.sep in name or os.path.splitext(name)[1]:
        raise _no_file(name)
    raise UnknownName("topology", name or text, _known())


def _no_file(name: str) -> BadFile:
    """Return the error of a file that is not there, or of the first wrong term of ``a*3+b*2``."""
    terms = [piece.partition("*") for piece in name.split("+")]
    there = [plain in _known() or os.path.exists(plain) for plain, _, _ in terms]
    for (plain, star, number), is_there in zip(terms, there, strict=True):
        if any(there) and not is_there:
            return BadFile("no such file" if plain else "a + without a host", where=plain or name)
        if is_there and star and not re.fullmatch(r"\d{1,5}", number):
            hint = f"{plain}*2 is two such hosts, and 99999 are the most"
            return BadFile(f"expected a number of hosts, got {number!r}", where=name, hint=hint)
    return BadFile("no such file", where=name)


def _splits(text: str) -> Iterator[tuple[str, int]]:
    """Yield (path, start of the options) for the whole text, then per colon from the right."""
    yield text, len(text)
    for i in range(len(text) - 1, 0, -1):
        if text[i] == ":":
            yield text[:i], i + 1


# --- hosts of several kinds -----------------------------------------------------------------------

_COUNTED = re.compile(r"(.*)\*(\d{1,5})(?::(.*))?")
_OF_CLUSTER = ("fabric", "hosts", "oversub", "sharp", *sorted(OF_ANY - {"without"}))
"""Options of all hosts together, which stand in the last term."""


def _terms(text: str) -> list[tuple[str, int]]:
    """Return the terms of ``a.txt*3+b.txt:gpu=a30*2`` with their counts; empty for other texts."""
    if not ("*" in text or "+" in text) or os.path.exists(text):
        return []
    pieces: list[str] = []
    for piece in text.split("+"):
        plain = re.split(r"[*:]", piece, maxsplit=1)[0]
        if pieces and plain not in _known() and not os.path.exists(plain):
            pieces[-1] += f"+{piece}"  # fabric=rails+spine
        else:
            pieces.append(piece)
    terms = []
    for piece in pieces:
        found = _COUNTED.fullmatch(piece)
        if found is None:
            terms.append((piece, 1))
            continue
        options = f"{',' if ':' in found[1] else ':'}{found[3]}" if found[3] else ""
        terms.append((found[1] + options, int(found[2])))
    return terms if len(terms) > 1 or "*" in pieces[0] else []


def _cluster(text: str, terms: list[tuple[str, int]]) -> Topology:
    spec = MachineSpec("", (), {}, {}, Source("topology", text))
    parts = []
    for last, (term, count) in zip((*[False] * (len(terms) - 1), True), terms, strict=True):
        if not count:
            raise UserError(f"expected a host, got {term}*0", where=text, hint="leave it out")
        own = parse_spec(term) if term.partition(":")[0] in _known() else _file_spec(term)[1]
        if own.has("nodes"):
            raise UserError(f"{term}: nodes= is written *N here", where=own.keys["nodes"])
        keys = [key for key in _OF_CLUSTER if last and own.has(key)]
        spec.options.update({key: own.options.pop(key) for key in keys})
        spec.keys.update({key: own.keys[key] for key in keys})
        parts.append((_template(own), count))
    fabric = asked_fabric(spec)
    name = "+".join(f"{one.name}*{count}" for one, count in parts)
    name += ":" * bool(spec.options) + _written(spec.options)
    made = cluster(parts, spec, fabric)
    if not spec.has("fabric"):
        note = "the network between hosts is not in the files; assumed fabric=star"
        made = replace(made, notes=(*made.notes, note))
    return _finished(in_hosts(replace(made, name=name), spec), spec)


def _template(own: MachineSpec) -> HostTemplate:
    if any(own.name == family.name for family in FAMILIES):
        raise UserError(
            f"{own.name} is not a host", hint="hosts are dgx-a100, box.txt and the like"
        )
    listed = _written(own.options)
    name = own.name + (":" + listed if listed else "")
    two = f"{name}{',' if listed else ':'}nodes=2,fabric=star,loopback=on"
    base = own.name if own.name in _known() else os.path.basename(own.name)
    made = topology(two)
    notes = tuple(note for note in made.notes if "assumed fabric=" not in note)
    return host_of(replace(made, notes=notes), base + name[len(own.name) :])


def _written(options: Mapping[str, Sequence[OptionValue]]) -> str:
    return ",".join(f"{k}={','.join(v.text for v in values)}" for k, values in options.items())
