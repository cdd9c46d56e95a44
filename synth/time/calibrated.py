"""Runtime models from published constants: every number with its source and how sure it is.

The table is ``calibrated.toml``; a machine's own numbers (:mod:`weft.dsl.nouns.timing`), and those
given for one command, take the place of its defaults. Programs are timed by the whole model;
schedules and bounds by α and bandwidth alone, which their proofs are about.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import exact
from weft.dsl.nouns.parts import Medium, NodeKind
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.timing import TimingNumber, flattened
from weft.dsl.nouns.topology import Topology

from .runtime_model import MediaModel, RuntimeModel, model_of

NCCL, NCCL_TREE = "nccl", "nccl-tree"
"""Runtimes of NCCL's own kernels, which run no files: rings and all but trees, and trees."""

CAST_NUMBERS = ("nvls", "cast", "signal", "casting")
"""Keys of times of plans in which switches sum or copy."""

NO_CLASS = (
    "no class of link is known{where}: they have the machine's own α and bandwidth, under every "
    "protocol; the start is that of the runtime, assumed. family=h100 behind a catalogue name, "
    "family under [timing] or medium of its links in a machine's file names it"
)
"""Remark on links of which neither family nor names show the medium."""


class Certainty(StrEnum):
    """Mark of a number: given, published, fitted or assumed; the surest first."""

    GIVEN = "given"  #: by the user, or by the machine's file
    PUBLISHED = "published"
    FITTED = "fitted to published"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class ModelNumber:
    """A number of a runtime model, by its key in the table, with mark and source."""

    key: str
    value: Fraction
    certainty: Certainty
    source: str

    @property
    def replaced_by(self) -> str:
        """Return the number's replacement, in words: a flag, a line of a file, a measurement."""
        told = f"--timing {self.key}=…, or {self.key} under [timing] in the machine's file"
        first, *rest = self.key.split(".")
        key = f"{first}.{rest[0]}" if first in ("alpha", "host") else first
        step = _STEPS.get(key, "")  # of ``weft profile``, which measures it
        return f"{told}, or {step}" if step else f"{told}; weft profile does not measure it"


_FAMILY = "; --family names the class of links"
_INSIDE = f"weft profile: 8-byte rings of 2, 3, … ranks in a host, by protocol{_FAMILY}"
_BETWEEN = "weft profile: 8-byte rings over one rank of each of 3 hosts or more, by protocol"

_STEPS = {
    "start": "weft profile: 8-byte rings of 2, 3, … ranks, by protocol: their time without steps",
    **{f"alpha.{medium}": _INSIDE for medium in Medium},
    f"alpha.{Medium.NETWORK}": _BETWEEN,
    "factor": "weft profile, which measures α itself, without a factor: 8-byte rings",
    "nominal": "weft profile: α of the links, from echoes of two ranks",
    "message": "weft profile: 8 bytes from one rank to 1, 2, 4, 8 remote ones",
    "host.per_gpu": "weft profile: calls that send nothing, in a row",
    "reach": f"weft profile: 64 MiB over two ranks, all channels{_FAMILY}",
    "cap": "weft profile --on nccl: 64 MiB over two ranks, one channel",
}


@dataclass(frozen=True, slots=True)
class SourcedNumbers:
    """Numbers of one source."""

    families: tuple[str, ...]
    runtimes: tuple[str, ...]
    certainty: Certainty
    source: str
    values: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class _Defaults:
    """Families, each with the medium inside its hosts and the family whose numbers it has where it
    has none; and groups of numbers."""

    families: Mapping[str, tuple[Medium, str]]
    groups: tuple[SourcedNumbers, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for group in self.groups for key in group.values))

    def line(self, family: str) -> tuple[str, ...]:
        """The family, the one it is like, and so on.

        Raises:
            UnknownName: unknown family.
        """
        found: list[str] = []
        while family:
            if family not in self.families:
                raise UnknownName("family of machines", family, self.families)
            found.append(family)
            family = self.families[family][1]
        return tuple(found)

    def find(self, key: str, line: Sequence[str], runtime: str) -> ModelNumber | None:
        best: tuple[tuple[int, int], SourcedNumbers, int] | None = None
        for group in self.groups:
            if key not in group.values or (group.runtimes and runtime not in group.runtimes):
                continue
            near = [i for i, family in enumerate(line) if family in group.families]
            if group.families and not near:
                continue
            steps = near[0] if near else len(line)
            rank = (steps, 0 if group.runtimes else 1)
            if best is None or rank < best[0]:
                best = rank, group, steps
        if best is None:
            return None
        _, group, steps = best
        if 0 < steps and group.families:
            told = f"as for {line[steps]}: {group.source}"
            return ModelNumber(key, group.values[key], Certainty.ASSUMED, told)
        return ModelNumber(key, group.values[key], group.certainty, group.source)


@cache
def _table(kind: str = "group") -> _Defaults:
    """The defaults (``group``), or the most that was seen of them (``best``)."""
    text = files(__package__).joinpath("calibrated.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    groups = tuple(
        SourcedNumbers(
            tuple(one.get("families", ())),
            tuple(one.get("runtimes", ())),
            Certainty[one["mark"].upper()],
            one["source"],
            {key: exact(x, key) for key, x in flattened(one["values"]).items()},
        )
        for one in data[kind]
    )
    families = {
        name: (Medium(one["medium"]), one.get("like", "")) for name, one in data["family"].items()
    }
    return _Defaults(families, groups)


def families() -> tuple[str, ...]:
    """The families of machines of which numbers are known."""
    return tuple(_table().families)


def timing_keys() -> tuple[str, ...]:
    """The keys that a user or a machine's file may give numbers for."""
    return _table().keys


def require_known(keys: Iterable[str], where: str) -> None:
    """Refuse keys that are none of the runtime model.

    Raises:
        UnknownName: one of them.
    """
    for key in keys:
        if key not in timing_keys():
            raise UnknownName("key of the runtime model", key, timing_keys(), where=where)


def given_number(text: str) -> TimingNumber:
    """Return the number of a text such as ``alpha.nvlink.LL=0.8``.

    Raises:
        UserError: not of that form. UnknownName: no such key.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"{text!r} is not KEY=NUMBER", hint="write alpha.nvlink.LL=0.8")
    if key not in timing_keys():
        raise UnknownName("key of the runtime model", key, timing_keys())
    return TimingNumber(key, exact(value, key), "given")


def family_line(topology: Topology) -> tuple[str, ...]:
    """The family of a machine, the one that it is like, and so on."""
    return _table().line(topology.timing.family)


def family_medium(family: str) -> Medium | None:
    """The medium inside the hosts of a family; None: no family is named.

    Raises:
        UnknownName: unknown family.
    """
    line = _table().line(family)
    return _table().families[line[0]][0] if line else None


def inner_medium(topology: Topology) -> Medium | None:
    """The medium inside the hosts of a machine: its family's, or that of named links, or of its
    own numbers; None: unknown."""
    if medium := family_medium(topology.timing.family):
        return medium
    named = {str(one.medium) for one in topology.links if one.medium}
    named = named or {part for one in topology.timing.numbers for part in one.key.split(".")}
    known = [one for one in (Medium.NVLINK, Medium.XGMI, Medium.PCIE) if one in named]
    return known[0] if known else None


@kept()
def link_media(topology: Topology) -> tuple[Medium | None, ...]:
    """The medium of each link: as it is named; the network between hosts, PCIe to a NIC; else the
    family's; None: not known."""
    inner = inner_medium(topology)
    hosts = [node.host for node in topology.nodes]
    several = topology.hosts > 1
    nics = [node.kind is NodeKind.NIC for node in topology.nodes]
    found: list[Medium | None] = []
    for one in topology.links:
        if one.medium is not None:
            found.append(one.medium)
        elif several and hosts[one.src] != hosts[one.dst]:
            found.append(Medium.NETWORK)
        elif several and hosts[one.src] is None:  # between switches of the network
            found.append(Medium.NETWORK)
        elif nics[one.src] or nics[one.dst]:
            found.append(Medium.PCIE)
        else:
            found.append(inner)
    return tuple(found)


def model_number(topology: Topology, key: str, runtime: str = NCCL) -> float | None:
    """The number of a key on a machine, as of the runtime's own kernels; None: there is none."""
    found = _NumberFinder(topology, runtime, ()).look(key)
    return None if found is None else float(found)


def channels_of(topology: Topology) -> int:
    """Channels that NCCL's own kernels take on a machine."""
    return int(_NumberFinder(topology, NCCL, ()).number("channels"))


def host_us(topology: Topology, gpus: int) -> Fraction:
    """µs that a process with several GPUs takes for a call."""
    return _NumberFinder(topology, NCCL, ()).number("host.per_gpu") * gpus


def calibrated_model(
    topology: Topology, runtime: str | None = None, given: Iterable[TimingNumber] = ()
) -> RuntimeModel:
    """The model of a runtime (``nccl`` and ``mscclpp`` have kernels of their own) on a machine.

    ``given``: numbers that replace those of the table and of the machine.

    Raises:
        UnknownName: the machine is of a family, or has a number, that is not known.
    """
    return _calibrated(topology, (runtime or "msccl", tuple(given)))


DATASHEET, CALIBRATED = MODELS = "datasheet", "calibrated"
"""Models by name: of data sheets and protocols alone, and with published constants."""

USUAL_MODEL = CALIBRATED
"""The model by which programs are timed where none is named: on the command line and in Python."""


def named_model(
    topology: Topology, runtime: str | None = None, model: str = USUAL_MODEL
) -> RuntimeModel:
    """The model of a runtime by its name.

    Raises:
        UnknownName: no such model; else as :func:`calibrated_model`.
    """
    return ModelChoice(model).on(topology, runtime)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Name of a model, and numbers that replace its own.

    Raises:
        UnknownName: no such model. UserError: numbers for the one that has none.
    """

    name: str = USUAL_MODEL
    given: tuple[TimingNumber, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in MODELS:
            raise UnknownName("model of runtimes", self.name, MODELS)
        if self.given and self.name == DATASHEET:
            raise UserError(
                "--timing gives numbers of the calibrated model",
                hint="leave --model datasheet out",
            )

    def anchors(self) -> tuple[str, tuple[TimingNumber, ...]]:
        """Return the key of results (:func:`.kept`)."""
        return self.name, self.given

    def on(self, topology: Topology, runtime: str | None = None) -> RuntimeModel:
        """The model of a runtime on a machine.

        Raises:
            UnknownName: as :func:`calibrated_model`. UserError: a number of a medium that no link
                of the machine has.
        """
        if self.name == DATASHEET:
            return model_of(runtime)
        media = link_media(topology)
        for one in self.given:
            if absent := _absent(one.key, media):
                known = ", ".join(sorted({str(x) for x in media if x})) or "not known"
                raise UserError(
                    f"no link of {topology.name} is of class {absent}; its classes are {known}",
                    where=one.key,
                    hint="family=h100 behind a catalogue name, or medium of the links in a "
                    "machine's file, tells the class",
                )
        return calibrated_model(topology, runtime, self.given)


def _absent(key: str, media: Sequence[Medium | None]) -> Medium | None:
    """Return the medium that a key names if no link of the machine is of it."""
    return next((x for x in Medium if x in key.split(".") and x not in media), None)


USUAL_CHOICE = ModelChoice()
"""The model of programs where none is named."""


def at_best(choice: ModelChoice, topology: Topology, runtime: str) -> ModelChoice:
    """Return a choice whose defaults are at the most that was seen of them, for bounds on times
    that are measured. Numbers of the machine, or of the choice, stay."""
    table, line, more = _table("best"), family_line(topology), list[TimingNumber]()
    media = link_media(topology)
    for one in choice.on(topology, runtime).numbers:
        found = table.find(one.key, line, runtime)
        if _absent(one.key, media) or one.certainty is Certainty.GIVEN:
            continue
        if found and found.value > one.value:
            more.append(TimingNumber(one.key, found.value, found.source))
    return replace(choice, given=(*choice.given, *more))


@kept()
def _calibrated(topology: Topology, asked: tuple[str, tuple[TimingNumber, ...]]) -> RuntimeModel:
    runtime, given = asked
    finder = _NumberFinder(topology, runtime, given)
    base = model_of(runtime)
    protocols = {
        name: replace(
            one,
            efficiency=finder.number(f"efficiency.{name}"),
            start_us=finder.number(f"start.{name}"),
            alpha_us={
                medium: finder.alpha(medium, name) - finder.number(f"nominal.{medium}")
                for medium in finder.media
            },
            send_GBps=finder.cap(name),
            message_us=finder.number(f"message.{name}"),
            rooted_pieces=runtime in (NCCL, NCCL_TREE),
        )
        for name, one in base.protocols.items()
    }
    reach = {medium: finder.number(f"reach.{medium}") for medium in finder.media}
    unknown = sum(medium is None for medium in link_media(topology))
    where = "" if unknown == len(topology.links) else f" of {unknown} links"
    if any(node.computes for node in topology.nodes):
        for key in CAST_NUMBERS:
            finder.look(key)
    return replace(
        base,
        name=runtime,
        protocols=protocols,
        local_GBps=finder.number("local"),
        media=MediaModel(reach, link_media(topology)),
        numbers=tuple(finder.used.values()),
        remarks=(NO_CLASS.format(where=where),) if unknown else (),
    )


class _NumberFinder:
    def __init__(self, topology: Topology, runtime: str, given: Sequence[TimingNumber]) -> None:
        self.table, self.runtime = _table(), runtime
        self.line = self.table.line(topology.timing.family)
        self.own = {one.key: one for one in (*topology.timing.numbers, *given)}
        require_known(self.own, f"{topology.name}: timing")
        known = {*link_media(topology), inner_medium(topology)} - {None}
        self.media = [one for one in Medium if one in known]
        self.used: dict[str, ModelNumber] = {}

    def look(self, key: str) -> Fraction | None:
        if own := self.own.get(key):
            self.used[key] = ModelNumber(key, own.value, Certainty.GIVEN, own.source)
        elif found := self.table.find(key, self.line, self.runtime):
            self.used[key] = found
        else:
            return None
        return self.used[key].value

    def number(self, key: str) -> Fraction:
        """The number of a key that has a default."""
        found = self.look(key)
        assert found is not None, f"calibrated.toml has no default for {key}"
        return found

    def alpha(self, medium: Medium, protocol: Protocol) -> Fraction:
        """µs of a message: the given number, or the medium's times the family's factor."""
        alpha = self.number(f"alpha.{medium}.{protocol}")
        if f"alpha.{medium}.{protocol}" in self.own:
            return alpha
        return alpha * self.number(f"factor.{medium}")

    def cap(self, protocol: Protocol) -> Fraction | float:
        """GB/s that a thread block sends at most, payload and flags."""
        send = self.look("cap.send")
        found = math.inf if send is None else send * self.number(f"efficiency.{protocol}")
        if protocol is Protocol.LL128 and (own := self.look("cap.LL128")) is not None:
            found = min(found, own)
        return found
