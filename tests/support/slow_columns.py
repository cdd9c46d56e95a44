"""The columns of a program once more: slowly and plainly, one instruction after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from weft.dsl.nouns.program import RankProgram


def slow_columns(ranks: Sequence[RankProgram]) -> dict[str, list[int]]:
    """What :class:`weft.dsl.nouns.program.Program` holds and derives, by name, from views alone.

    Offsets count through all ranks; a wait for what is not there has row -1.
    """
    found: dict[str, list[int]] = defaultdict(list)
    blocks = [(r, b) for r, rank in enumerate(ranks) for b in range(len(rank.blocks))]
    rows = [(r, b, i) for r, b in blocks for i in range(len(ranks[r].blocks[b].code))]
    for r, rank in enumerate(ranks):
        found["chunks"] += [rank.input_chunks, rank.output_chunks, rank.scratch_chunks]
        found["first_block"].append(_begin(blocks, (r, 0)))
    found["first_block"].append(len(blocks))
    for r, b in blocks:
        block = ranks[r].blocks[b]
        found["block_rank"].append(r)
        found["block_index"].append(b)
        found["block_channel"].append(block.channel)
        found["block_send"].append(-1 if block.send is None else block.send)
        found["block_recv"].append(-1 if block.recv is None else block.recv)
        found["block_start"].append(_begin(rows, (r, b)))
        found["lengths"].append(len(block.code))
    found["block_start"].append(len(rows))
    for at, (r, b, i) in enumerate(rows):
        x = ranks[r].blocks[b].code[i]
        found["rank"].append(r)
        found["block"].append(blocks.index((r, b)))
        found["index"].append(i)
        found["op"].append("s r rcs rrs rrc rrcs cpy re nop".split().index(x.op))
        for side, part in (("src", x.src), ("dst", x.dst)):
            found[f"{side}_buffer"].append("ios".index(part.buffer))
            found[f"{side}_offset"].append(part.offset)
        found["count"].append(x.count)
        found["wait_start"].append(len(found["wait_id"]))
        for block, index in x.waits:
            found["waiting"].append(at)
            found["wait_id"].append(block)
            found["wait_flag"].append(index)
            named = (r, block)
            found["wait_block"].append(blocks.index(named) if named in blocks else -1)
            there = (r, block, index)
            found["wait"].append(rows.index(there) if there in rows else -1)
    found["wait_start"].append(len(found["wait_id"]))
    return found


def _begin(places: list[tuple[int, ...]], least: tuple[int, ...]) -> int:
    """The number of places before ``least``; places ascend."""
    return sum(place < least for place in places)
