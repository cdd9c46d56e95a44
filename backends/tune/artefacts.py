"""The files of a plan: compiled under all checks, emitted, judged and executed, for each format.

The sizes written into a file follow the rule of its reader: microsoft/msccl takes messages
*below* ``maxBytes``, all others those up to and including it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.library import Artefact
from weft.dsl.nouns.runtime import target as target_of
from weft.dsl.nouns.schedule import Schedule, load

from ..check.findings import require_good
from ..compile.compile import lower_schedule
from ..compile.request import Request
from ..compile.source import BY_MESSAGES, fitted
from ..compile.variants import Variant
from ..formats.format import ExecutionRequest, Format, format_named
from ..formats.msccl.emit import collective_name
from ..formats.msccl.format import MscclXml
from ..formats.p2p.compile import compile_script
from ..formats.p2p.format import ScriptFile
from .effort import EFFORT

if TYPE_CHECKING:
    from weft.dsl.nouns.program import Program

OUT_OF_PLACE_ONLY = (Kind.ALLTOALL, Kind.CUSTOM)
"""Collectives that no runtime takes in place (microsoft/msccl refuses alltoall; a collective of
one's own is called out of place)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Files to make of a plan: formats, the runtime of MSCCL XML, and the buffer placements.

    ``formats``: as in ``--to``, with their options.
    """

    formats: tuple[str, ...] = ("msccl-xml",)
    runtime: str = "msccl"
    in_place: tuple[bool, ...] = (False, True)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the formats."""
        return tuple(format_named(text).name for text in self.formats)

    def without(self, protocol: str) -> str | None:
        """Return the first format whose files cannot express a protocol; None: all can."""
        made = map(format_named, self.formats)
        return next((one.name for one in made if protocol not in one.protocols), None)

    def placements(self, kind: Kind, format: str) -> tuple[bool, ...]:
        """Return the placements (in place or not) of a collective in a format."""
        out_only = format_named(format).any_buffers or kind in OUT_OF_PLACE_ONLY
        return (False,) if out_only else self.in_place

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for a job."""
        return {
            "formats": list(self.formats),
            "runtime": self.runtime,
            "in_place": list(self.in_place),
        }


def require_expressible(wanted: Wanted, collective: Collective) -> None:
    """Check before a long search that its answer can be timed and written.

    Raises:
        UserError: the runtime lacks a name for the collective, or none takes it in place.
    """

    kind = collective.kind
    collective_name(kind, target_of(wanted.runtime))
    if wanted.in_place == (True,) and kind in OUT_OF_PLACE_ONLY:
        raise UserError(
            f"no runtime takes {collective.name or kind} in place", hint="--placement out"
        )


def make(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the files of one program for some ranges of sizes, as a job.

    ``given``: ``schedule``, ``variant``, ``ranges`` (``name``, ``low`` and ``high`` of each plan),
    ``wanted``, ``seed``. Returns for each range ``files`` (text by path), ``artefacts``, and
    ``chunks`` of the message in MSCCL XML (0: without one).

    Raises:
        CheckFailed: a checker rejects something on the way.
        UserError: a format cannot express it.
    """
    schedule, wanted = load(given["schedule"]), given["wanted"]
    asked = Wanted(tuple(wanted["formats"]), wanted["runtime"], tuple(wanted["in_place"]))
    variant = Variant.of(given["variant"])
    made: list[dict[str, Any]] = [
        {"files": {}, "artefacts": [], "chunks": 0} for _ in given["ranges"]
    ]
    for format in asked.formats:
        backend = format_named(format).on(schedule.topology)
        # Shares as the format can express them, in which the file is judged as well.
        shaped = schedule
        if not len(schedule.casts):
            shaped, _ = fitted(schedule, backend.name, variant.segments * variant.parts)
        target, chunks = "", 0
        if isinstance(backend, MscclXml):
            target = asked.runtime
            chunks = shaped.collective.coarsest().message_chunks * variant.pieces
        for in_place in asked.placements(schedule.collective.kind, format):
            writer = _ProgramFiles(shaped, variant, backend, asked.runtime, in_place, given["seed"])
            for one, plan in zip(made, given["ranges"], strict=True):
                path, text = writer.file(plan["name"], SizeRange(plan["low"], plan["high"]))
                one["files"][path] = text
                one["chunks"] = chunks or one["chunks"]
                one["artefacts"].append(
                    {"format": backend.name, "file": path, "target": target, "in_place": in_place}
                )
    return made


def artefacts_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Artefact, ...]:
    """Return the artefacts from the results of :func:`make`."""
    return tuple(Artefact(**row) for row in rows)


@dataclass(eq=False)
class _ProgramFiles:
    """Files of one program in one format and placement, each for a range of sizes.

    ``executed``: what was executed, without the names and sizes in it. Those decide only which
    hangs of a file count, and each file is proved to have none.
    """

    schedule: Schedule
    variant: Variant
    backend: Format
    runtime: str
    in_place: bool
    seed: int
    executed: set[str] = field(default_factory=set)

    def file(self, plan: str, sizes: SizeRange) -> tuple[str, str]:
        """Return the path and the text of a file, proved and executed.

        Raises:
            CheckFailed: it is wrong.
        """
        name = plan + ("-in-place" if self.in_place else "")
        path = f"{self.backend.name}/{name}{self.backend.suffix}"
        text = self._text(name, sizes)
        require_good(self.backend.findings(text, path, self.runtime), path)
        first, rest, others = text.partition("\n")
        nameless = re.sub(r' (?:name|minBytes|maxBytes)="[^"]*"', "", first) + rest + others
        if self.schedule.topology.ranks <= EFFORT.executed_ranks and nameless not in self.executed:
            self._execute(text, path)
            self.executed.add(nameless)
        return path, text

    @cached_property
    def program(self) -> Program:
        """The program, not judged after every pass: each file is proved from its text."""
        options = self.variant.options(target_of(self.runtime), in_place=self.in_place)
        return lower_schedule(self.schedule, options)

    def _text(self, name: str, sizes: SizeRange) -> str:
        if len(self.schedule.casts):
            return self._cast_text(name, sizes)
        if isinstance(self.backend, ScriptFile):
            script = compile_script(self.schedule, name)
            return self.backend.write(script, (), name.replace("-", "_"))
        program = replace(self.program, name=name)
        written = written_sizes(self.backend.name, self.runtime, sizes)
        return self.backend.emit(program, target_of(self.runtime), written)

    def _cast_text(self, name: str, sizes: SizeRange) -> str:
        """Return a plan in which switches sum or copy; it is proved here, too."""
        asked = Request(
            self.schedule,
            sizes=written_sizes(self.backend.name, self.runtime, sizes),
            to=self.backend.name,
            name=name,
            in_place=self.in_place,
            instances=self.variant.instances,
        )
        return self.backend.make(asked).text

    def _execute(self, text: str, where: str) -> None:
        """Execute a file; raises CheckFailed if it computes something else."""
        # Equal chunks, whatever the schedule's are: a file with instances cuts them once more.
        wanted = self.schedule.collective.coarsest().in_grains()
        few, steps = EFFORT.few_execution_orders, EFFORT.executed_operations
        many = self.schedule.topology.ranks > EFFORT.many_ranks
        orders = few if many else EFFORT.execution_orders
        if isinstance(self.backend, MscclXml):
            orders = max(few, min(orders, EFFORT.compiled_operations // self.program.instructions))
        request = ExecutionRequest(
            interleavings=orders, seed=self.seed, collective=wanted, steps=steps
        )
        done = self.backend.execute(text, where, request)
        if not done.ok:
            raise CheckFailed(
                f"the artefact computes something else: {done.detail}",
                where=where,
                hint="nothing was written; this is a bug in weft, please report it",
            )


def written_sizes(format: str, runtime: str, sizes: SizeRange) -> SizeRange:
    """Return the sizes to write into a file so that its reader takes exactly ``sizes``."""
    exclusive = format == "msccl-xml" and target_of(runtime).max_bytes_excluded
    return SizeRange(sizes.low, sizes.high + 1) if exclusive else sizes


def require_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """Return formats with their options, each known, there once, and able to write a plan.

    Raises:
        UserError: an unknown one, one whose files are not made of programs, or none.
    """
    if not formats:
        raise UserError("no format is named", hint="--to msccl-xml")
    found: dict[str, str] = {}
    for text in formats:
        backend = format_named(text)
        name = backend.name
        if found.setdefault(name, text) != text:
            raise UserError(f"{name} is asked for twice", where="--to", hint="one library for each")
        if not backend.defines("emit", "findings", "execute"):
            told = f"expected a format of programs for a range of sizes, got {name}"
            size = " --size SIZE" if name in BY_MESSAGES else ""
            raise UserError(told, where="--to", hint=f"weft compile SCHEDULE --to {name}{size}")
    return tuple(found.values())
