"""Thread blocks in the canonical text, read at once: a file of two million steps takes seconds.

Only what :mod:`.msccl_xml` would read without a remark is taken: decimal numbers
in their ranges, attributes in the usual order, no ``re`` (which may fuse), no odd ``nop``. All
else, and all mistakes, are left to the reader of single elements.
"""

from __future__ import annotations

import re

from weft.dsl.nouns.program import Buffer, Op, Slice
from weft.dsl.nouns.runtime import MAX_COUNT

from .model import XmlBlock, XmlTransfer

_WHOLE = r"(?:0|[1-9][0-9]{0,4})"
_OFFSET = rf"(-1|{_WHOLE})"
_MIDDLE = (
    rf'type="(s|r|rcs|rrs|rrc|rrcs|cpy|nop)" srcbuf="([ios])" srcoff="{_OFFSET}" '
    rf'dstbuf="([ios])" dstoff="{_OFFSET}" cnt="({_WHOLE})"'
)
_STEP = (
    rf'<step s="({_WHOLE})" ({re.sub("[(](?![?])", "(?:", _MIDDLE)}) '
    rf'depid="(-1|{_WHOLE})" deps="(-1|{_WHOLE})" hasdep="([01])"/>'
)
_ONE_STEP, _ONE_MIDDLE = re.compile(_STEP), re.compile(_MIDDLE)
_BODY = re.compile(rf"(?:[ \n]*+{re.sub('[(](?![?])', '(?:', _STEP)})*+[ \n]*+</tb>")

_Row = tuple[str, str, str, str, str]
_Known = dict[str, "tuple[Op, Slice, Slice, int] | None"]


class PlainBlocks:
    """Reads the steps of blocks; remembers what it has seen of their texts."""

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
    """Parse what a step says of data; None if some runtime makes something else of it."""
    match = _ONE_MIDDLE.fullmatch(middle)
    assert match is not None
    kind, src, src_offset, dst, dst_offset, count = match.groups()
    offsets = int(src_offset), int(dst_offset)
    op = Op(kind)
    if max(offsets) >= 1 << 15 or (op is not Op.NOP and not 0 < int(count) <= MAX_COUNT):
        return None
    return op, Slice(Buffer(src), offsets[0]), Slice(Buffer(dst), offsets[1]), int(count)
