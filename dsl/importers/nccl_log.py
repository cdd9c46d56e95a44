"""Reader of debug logs of NCCL, RCCL and the runtimes of MSCCL: files read, and choices that ran.

Forms, by their sources: ``Parsed MSCCL Algorithm F successfully.`` and ``Connected N MSCCL
algorithms`` (microsoft/msccl 0.7.4); ``Using MSCCL files from D`` (ROCm/rccl to 7.2.4); ``MSCCL:
Initialization finished`` (RCCL, Azure/msccl-executor-nccl); ``weft: registered F with MSCCL++``
(of our own file). NCCL logs its own choices under the subsystem TUNING: ``N Bytes -> Algo
1 proto 2 time T`` up to 2.22, ``AllReduce: N Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}``
from 2.23 on. Lines may come from all ranks, in any order, cut by labels of launchers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from ..base.files import looks_like_json
from ..base.lazy_dataclass import Frozen
from ..nouns.collective import Kind
from ..nouns.program import Protocol
from ..nouns.runtime import LOADERS
from .nccl_tests import plain_lines

_LOG = re.compile(r"\b(?:NCCL|RCCL|MSCCLPP) (INFO|WARN) |^weft: registered ")
_VERSION = re.compile(r"\b(NCCL|RCCL) version ?:? ?(\d[\w.]*)")
_SET = re.compile(r"(\w+) set by environment to (\S.*?)\.?$")
_ENVIRONMENT = re.compile(r'"((?:NCCL|RCCL)_\w{1,60})=([^"\\]{0,200})"')
"""A variable in the JSON of nccl-tests, which lists the environment."""

_CHOICE = re.compile(
    r"(?:\b(\w+): )?\b(\d{1,18}) Bytes -> Algo (\w{1,40}) proto (\w{1,40})\b"
    r"(?: channel\SLo\.\.Hi\S\S\S(\d{1,9})\.\.(\d{1,9})\b)?"
)
_CHANNELS = re.compile(r"\b(\d{1,9}) coll channels\b")
_CONNECTED = re.compile(r"Connected (\d{1,9}) MSCCL algorithms")
_REFUSED = re.compile(r"MSCCL(?:\+\+|PP)?\b.*|.*failed to initialize.*")
_NO_FILES = re.compile(r"MSCCL doesn't support multiple GPUs in one process")
_FALLBACK = re.compile(r"No suitable algorithm found for collective '(\w+)', fallback")

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""NCCL's algorithms by their numbers (``nccl_common.h``), as tuner files spell them."""

OF_MSCCL = ("tree", "ring", "msccl", "collnet")
"""The same of microsoft/msccl (``devcomm.h``), where a file is one of them."""

PROTOCOLS = (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)
"""NCCL's protocols in the order of their numbers."""

_FUNCTIONS = {
    "allreduce": Kind.ALLREDUCE,
    "allgather": Kind.ALLGATHER,
    "reducescatter": Kind.REDUCE_SCATTER,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
}


class NcclChoice(Frozen):
    """An algorithm of NCCL's own that ran for a call.

    ``kind``: None where the log does not say; ``bytes``: as the log counts them, of one rank for
    allgather and reduce_scatter from NCCL 2.23 on; ``channels``: None where it does not say.
    """

    kind: Kind | None
    bytes: int
    algorithm: str
    protocol: str
    channels: int | None = None

    def message_bytes(self, ranks: int) -> int:
        """Return the bytes of the message as nccl-tests count them."""
        each = self.kind in (Kind.ALLGATHER, Kind.REDUCE_SCATTER)
        return self.bytes * ranks if each else self.bytes


class NcclLog(Frozen):
    """Contents of a debug log.

    Attributes:
        library: ``NCCL 2.20.5`` or ``RCCL 2.22.3``; empty if not stated.
        settings: variables that were set, by name.
        read: files and folders that were read, each once; ``by``: the runtimes that read them.
        choices: NCCL's own algorithms. ``channels``: of its collectives.
        refused: warnings about files, each once.
        lines: number of lines of the log.
    """

    library: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    read: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    choices: tuple[NcclChoice, ...] = ()
    channels: int | None = None
    refused: tuple[str, ...] = ()
    lines: int = 0


def read_log(text: str) -> NcclLog:
    """Return the contents of a debug log's lines in a text; empty without any."""
    plain = plain_lines(text)
    lines = [line for line in plain if _LOG.search(line)]
    settings = dict(_ENVIRONMENT.findall(text)) if looks_like_json(text) else {}
    read: dict[str, None] = {}
    by: dict[str, None] = {}
    choices: dict[NcclChoice, None] = {}
    refused: dict[str, None] = {}
    channels: int | None = None
    version = _VERSION.search("\n".join(plain))
    fork = any(_CONNECTED.search(line) or "Parsed MSCCL Algorithm" in line for line in lines)
    for line in lines:
        if told := _SET.search(line):
            settings[told[1]] = told[2]
        if told := _CHOICE.search(line):
            choices[_choice(told, fork)] = None
        if told := _CHANNELS.search(line):
            channels = int(told[1])
        for loader in LOADERS.values():
            if loader.read and (told := re.search(loader.read, line)):
                by[loader.name] = None
                read.update(dict.fromkeys(one for one in told.groups() if one))
        if told := _CONNECTED.search(line):
            by.setdefault("msccl")
        if why := _refusal(line):
            refused[why] = None
    if "rccl" in by:
        by.pop("executor", None)  # both say when they have begun
    return NcclLog(
        f"{version[1]} {version[2]}" if version else "",
        settings,
        tuple(read),
        tuple(by),
        tuple(choices),
        channels,
        tuple(refused),
        len(lines),
    )


def _choice(told: re.Match[str], fork: bool) -> NcclChoice:
    """Return the choice that ran, in the words of tuner files; ``fork``: by the numbers of
    microsoft/msccl."""
    names = OF_MSCCL if fork else ALGORITHMS
    algorithm, protocol = told[3].lower(), told[4].lower()
    if algorithm.isdecimal():
        number = int(algorithm)
        algorithm = names[number] if number < len(names) else algorithm
    if protocol.isdecimal():
        number = int(protocol)
        protocol = str(PROTOCOLS[number]).lower() if number < len(PROTOCOLS) else protocol
    named = {"nvlstree": "nvls_tree", "collnetdirect": "collnet_direct"}
    named["collnetchain"] = "collnet_chain"
    many = int(told[6]) - int(told[5]) + 1 if told[5] else None
    kind = _FUNCTIONS.get((told[1] or "").lower())
    return NcclChoice(kind, int(told[2]), named.get(algorithm, algorithm), protocol, many)


def _refusal(line: str) -> str:
    """Return the warning about a file in a line; empty if it has none."""
    if told := _NO_FILES.search(line) or _FALLBACK.search(line):
        return line[told.start() :]
    if "NCCL WARN" not in line:
        return ""
    rest = line.partition("NCCL WARN ")[2]
    return rest if _REFUSED.match(rest) else ""
