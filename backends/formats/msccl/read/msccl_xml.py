"""Read an MSCCL algorithm file as the runtimes read it.

The grammar of ``<algo>``, ``<gpu>``, ``<tb>``, ``<step>`` over the tags of
:mod:`.elements`. A file that no runtime can read is a :class:`BadFile`; what
some runtime rejects, or silently takes for something else, is a remark on the result, and the
program checker judges it for its target. All ranks are read (a runtime reads only its own).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar

from weft.dsl.base.errors import suggest
from weft.dsl.base.spans import Source
from weft.dsl.nouns.program import Buffer, Op, Protocol, Slice
from weft.dsl.nouns.runtime import MAX_COUNT

from .elements import Elements, Tag, XmlElement, fail, integer
from .model import ALL, FACTS, Remarks, XmlAlgo, XmlBlock, XmlRank, XmlTransfer
from .transfers import RawStep, transfers_of

COLLECTIVES = {
    "allreduce": ALL,
    "allgather": ALL,
    "alltoall": ALL,
    "broadcast": ALL,
    "reduce": ALL,
    "reduce_scatter": "M",
    "custom": "M",
    "reducescatter": "RE",
    "send": "RE",
    "recv": "RE",
    "gather": "RE",
    "scatter": "RE",
    "alltoallv": "RE",
}
"""The values of ``coll`` and the runtimes that know them."""

_Choice = TypeVar("_Choice", bound=StrEnum)
_SMALL = {str(i): i for i in range(-1, 1024)}
_OPS = {str(op): op for op in Op}
_BUFFERS = {str(b): b for b in Buffer}
_STEP = ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")


def read_msccl_xml(text: str, where: str = "<text>") -> XmlAlgo:
    """Return the algorithm in a text; ``where`` names the text in messages.

    Raises:
        BadFile: the text is one that no runtime reads, with line and column.
    """
    return _XmlReader(Source(where, text)).algo()


class _Attributes:
    """The attributes of one element as a runtime looks them up."""

    def __init__(self, element: XmlElement, source: Source, remarks: Remarks) -> None:
        self.element = element
        self._source = source
        self._remarks = remarks
        pairs = element.attributes
        if len(pairs) > FACTS.attributes:
            self._note(f"only the first {FACTS.attributes} attributes of an element are read")
            pairs = pairs[: FACTS.attributes]
        self.values = dict(reversed(pairs))
        if len(self.values) < len(pairs):
            self._note("an attribute stands twice, or is empty: the first one counts")
        for key, value in pairs:
            if len(value) > FACTS.value_characters:
                self._note(f"the value of {key!r} is too long and overwrites the next attribute")

    def _note(self, message: str) -> None:
        self._remarks.add(f"<{self.element.name}>: {message}", ALL, self.place)

    @property
    def place(self) -> tuple[int, int]:
        return self.element.start, self.element.end

    def text(self, key: str, default: str | None = None) -> str:
        """Return the value of a required attribute."""
        value = self.values.get(key, default)
        if value is None:
            raise fail(
                self._source,
                *self.place,
                f"attribute {key!r} of <{self.element.name}> is missing",
                suggest(key, [k for k in self.values if k not in _STEP]),
            )
        return value

    def number(self, key: str, bits: int = 32) -> int:
        """Return a required integer."""
        text = self.text(key)
        small = _SMALL.get(text)
        if small is not None:
            return small
        value, quirk = integer(text, bits)
        if quirk:
            self._note(f"{key}={text[:24]!r} is read as {value}: {quirk}")
        return value

    def optional(self, key: str, bits: int = 32) -> int | None:
        """Return an integer, or None where it is absent."""
        return self.number(key, bits) if key in self.values else None

    def choice(self, key: str, known: dict[str, _Choice]) -> _Choice:
        """Return a required attribute that has one of a few values."""
        value = known.get(self.text(key))
        if value is None:
            raise fail(
                self._source,
                *self.place,
                f"unknown {key} {self.text(key)[:40]!r}",
                suggest(self.text(key)[:40], known),
            )
        return value


class _XmlReader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._remarks = Remarks(source)
        self._elements = Elements(source)
        self._plain = PlainBlocks(source.text)

    def algo(self) -> XmlAlgo:
        """Parse the whole file."""
        root = next(self._elements, None)
        if root is None:
            raise fail(self._source, 0, 1, "the file is empty")
        if root.name != "algo" or root.tag is not Tag.OPEN:
            raise fail(
                self._source,
                root.start,
                root.end,
                f"<{root.name[:40]}> where <algo> must begin",
                "an MSCCL file is one <algo> element with <gpu> elements in it",
            )
        attributes = self._attributes(root)
        ngpus = attributes.number("ngpus")
        ranks = self._gpus(root, ngpus)
        self._rest()
        return self._assemble(attributes, ngpus, ranks)

    def _attributes(self, element: XmlElement) -> _Attributes:
        return _Attributes(element, self._source, self._remarks)

    def _assemble(self, a: _Attributes, ngpus: int, ranks: dict[int, XmlRank]) -> XmlAlgo:
        if ngpus < 1 or ngpus > len(ranks):
            absent = next(r for r in range(len(ranks) + 1) if r not in ranks)
            raise fail(
                self._source,
                *a.place,
                f"expected a <gpu> of each of ngpus={ngpus} ranks, got none of rank {absent}",
                "each rank from 0 to ngpus-1 needs one",
            )
        coll = a.text("coll")
        known = COLLECTIVES.get(coll)
        if known is None:
            raise fail(
                self._source,
                *a.place,
                f"unknown coll {coll[:40]!r}",
                suggest(coll[:40], COLLECTIVES),
            )
        others = "".join(r for r in ALL if r not in known)
        if others:
            self._remarks.add(f"coll {coll!r} is unknown there", others, a.place, rejected=True)
        self._absences(a)
        outofplace = a.optional("outofplace")
        return XmlAlgo(
            name=a.values.get("name", "")[: FACTS.value_characters],
            protocol=a.choice("proto", {str(p): p for p in Protocol}),
            channels=a.number("nchannels"),
            message_chunks=a.number("nchunksperloop"),
            ngpus=ngpus,
            coll=coll,
            inplace=a.number("inplace") != 0,
            outofplace=None if outofplace is None else outofplace != 0,
            min_bytes=a.optional("minBytes", 64),
            max_bytes=a.optional("maxBytes", 64),
            nthreads=a.optional("nthreads") or 0,
            ranks=tuple(ranks[r] for r in range(ngpus)),
            remarks=self._remarks.all(),
            where=self._source.name,
        )

    def _absences(self, a: _Attributes) -> None:
        """Attributes of ``<algo>`` that only some runtimes insist on."""
        needed = {"name": "M", "outofplace": "RE", "minBytes": "RE", "maxBytes": "RE"}
        for key, runtimes in needed.items():
            if key not in a.values:
                self._remarks.add(
                    f"attribute {key!r} of <algo> is missing", runtimes, a.place, rejected=True
                )

    def _children(self, parent: XmlElement, known: str) -> Iterator[XmlElement]:
        """Yield the children of one name; others are skipped, as the runtimes do."""
        if parent.tag is Tag.SINGLE:
            return
        for element in self._elements:
            if element.tag is Tag.CLOSE:
                if element.name != parent.name:
                    raise fail(
                        self._source,
                        element.start,
                        element.end,
                        f"</{element.name[:40]}> where </{parent.name}> must stand",
                    )
                return
            if element.name == known:
                yield element
            else:
                self._remarks.add(
                    f"<{element.name[:40]}> in <{parent.name}> is ignored",
                    ALL,
                    (element.start, element.end),
                )
                self._skip(element)
        raise fail(
            self._source,
            parent.start,
            parent.end,
            f"<{parent.name}> never ends",
            "is the file truncated?",
        )

    def _skip(self, element: XmlElement) -> None:
        """Go past the end of an element and all that is in it."""
        depth = 1 if element.tag is Tag.OPEN else 0
        while depth:
            inner = next(self._elements, None)
            if inner is None:
                raise fail(
                    self._source, element.start, element.end, f"<{element.name[:40]}> never ends"
                )
            depth += {Tag.OPEN: 1, Tag.CLOSE: -1, Tag.SINGLE: 0}[inner.tag]

    def _rest(self) -> None:
        """Read and ignore text after ``</algo>``."""
        for element in self._elements:
            if element.tag is Tag.CLOSE:
                raise fail(
                    self._source,
                    element.start,
                    element.end,
                    f"</{element.name[:40]}> closes nothing",
                )
            self._remarks.add(
                f"<{element.name[:40]}> after </algo> is ignored", ALL, (element.start, element.end)
            )
            self._skip(element)

    def _gpus(self, root: XmlElement, ngpus: int) -> dict[int, XmlRank]:
        ranks: dict[int, XmlRank] = {}
        for element in self._children(root, "gpu"):
            a = self._attributes(element)
            rank = a.number("id")
            if not 0 <= rank < ngpus:
                self._remarks.add("<gpu> with an id outside 0 … ngpus-1 is ignored", ALL, a.place)
                self._skip(element)
                continue
            if rank in ranks:
                raise fail(self._source, *a.place, f"a second <gpu> with id {rank}")
            blocks = tuple(self._block(tb) for tb in self._children(element, "tb"))
            ranks[rank] = XmlRank(
                rank, a.number("i_chunks"), a.number("o_chunks"), a.number("s_chunks"), blocks
            )
        return ranks

    def _block(self, element: XmlElement) -> XmlBlock:
        a = self._attributes(element)
        head = a.number("id"), a.number("chan"), a.number("send"), a.number("recv")
        plain = self._plain.read(self._elements.at, head) if element.tag is Tag.OPEN else None
        if plain is not None:
            block, self._elements.at = plain
            return block
        steps = [self._step(step) for step in self._children(element, "step")]
        return XmlBlock(
            *head,
            transfers=transfers_of(steps, self._remarks),
            steps=len(steps),
            largest_s=max((step.s for step in steps), default=-1),
            waits=sum(step.depid >= 0 for step in steps),
        )

    def _step(self, element: XmlElement) -> RawStep:
        if element.tag is Tag.OPEN:
            child = next(self._elements, None)
            if child is None or child.tag is not Tag.CLOSE or child.name != "step":
                raise fail(
                    self._source,
                    element.start,
                    element.end,
                    "a <step> that is not closed, or has something in it",
                    "the runtimes crash on it; write <step …/>",
                )
        a = self._attributes(element)
        if a.values.get("type") == "ra":
            raise fail(
                self._source,
                *a.place,
                "unknown type 'ra'",
                "rccl and executor reject it; msccl reads it, and its kernel leaves the "
                "thread block there",
            )
        s, source, target, count, depid, deps, hasdep = map(a.number, _STEP)
        return RawStep(
            s,
            a.choice("type", _OPS),
            a.choice("srcbuf", _BUFFERS),
            source,
            a.choice("dstbuf", _BUFFERS),
            target,
            count,
            depid,
            deps,
            hasdep,
            a.place,
        )


# Thread blocks in the canonical text are read at once: a file of two million steps takes seconds.
# Only what the reader above takes without a remark: decimal numbers in their ranges, attributes in
# the usual order, no ``re`` (which may fuse), no odd ``nop``. All else, and all mistakes, are left
# to it.

_WHOLE = r"(?:0|[1-9][0-9]{0,4})"
_OFFSET = rf"(-1|{_WHOLE})"
_MIDDLE = (
    rf'type="(s|r|rcs|rrs|rrc|rrcs|cpy|nop)" srcbuf="([ios])" srcoff="{_OFFSET}" '
    rf'dstbuf="([ios])" dstoff="{_OFFSET}" cnt="({_WHOLE})"'
)
_PLAIN_STEP = (
    rf'<step s="({_WHOLE})" ({re.sub("[(](?![?])", "(?:", _MIDDLE)}) '
    rf'depid="(-1|{_WHOLE})" deps="(-1|{_WHOLE})" hasdep="([01])"/>'
)
_ONE_STEP, _ONE_MIDDLE = re.compile(_PLAIN_STEP), re.compile(_MIDDLE)
_BODY = re.compile(rf"(?:[ \n]*+{re.sub('[(](?![?])', '(?:', _PLAIN_STEP)})*+[ \n]*+</tb>")

_Row = tuple[str, str, str, str, str]
_Known = dict[str, "tuple[Op, Slice, Slice, int] | None"]


class PlainBlocks:
    """Reads the steps of blocks; remembers the texts that it has seen."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: _Known = {}

    def read(self, at: int, head: tuple[int, int, int, int]) -> tuple[XmlBlock, int] | None:
        """The block (id, channel, send, recv) whose body begins at a place, and where it ends.

        None: it is not as plain as that.
        """
        body = _BODY.match(self._text, at)
        if body is None:
            return None
        rows: list[_Row] = _ONE_STEP.findall(self._text, at, body.end())
        transfers = self._transfers(rows)
        if transfers is None:
            return None
        waits = sum([row[2] != "-1" for row in rows])
        largest = max((int(row[0]) for row in rows), default=-1)
        return XmlBlock(*head, transfers, len(rows), largest, waits), body.end()

    def _transfers(self, rows: list[_Row]) -> tuple[XmlTransfer, ...] | None:
        done: list[XmlTransfer] = []
        pending: list[tuple[int, int]] = []
        known = self._known
        counter = 0
        for s, middle, depid, deps, hasdep in rows:
            if middle not in known:
                known[middle] = _parsed(middle)
            parsed = known[middle]
            if parsed is None:
                return None
            op, src, dst, count = parsed
            waits: tuple[tuple[int, int], ...] = ()
            if depid != "-1":
                wait = int(depid), int(deps)
                if wait[0] > 127 or not 0 <= wait[1] < 1 << 15:
                    return None
                waits = (*pending, wait)
            elif pending:
                return None
            if op is Op.NOP:
                if not waits or hasdep == "1":
                    return None
                pending.append(waits[-1])
                continue
            pending = []
            if waits:
                counter += len(waits) - 1
            if int(s) != counter:
                return None
            done.append(XmlTransfer(op, counter, src, dst, count, waits, counter, hasdep == "1"))
            counter += 1
        return None if pending else tuple(done)


def _parsed(middle: str) -> tuple[Op, Slice, Slice, int] | None:
    """Parse the data of a step; None if some runtime reads it differently."""
    match = _ONE_MIDDLE.fullmatch(middle)
    assert match is not None
    kind, src, src_offset, dst, dst_offset, count = match.groups()
    offsets = int(src_offset), int(dst_offset)
    op = Op(kind)
    if max(offsets) >= 1 << 15 or (op is not Op.NOP and not 0 < int(count) <= MAX_COUNT):
        return None
    return op, Slice(Buffer(src), offsets[0]), Slice(Buffer(dst), offsets[1]), int(count)
