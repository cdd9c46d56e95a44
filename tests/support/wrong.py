"""A mutator of right files: each known way to be wrong, and the reason a checker must give.

The ways are those that the runtimes' sources show: what their lexer refuses, what their parsers
reject, what they accept silently and then crash, hang or compute wrong data on.
"""

from __future__ import annotations

from dataclasses import dataclass

from msccl_files import Gpu, Tb, algo, both_send_first
from right import RIGHT, fused_reduce
from xml_edit import (
    Edit,
    add_step,
    both,
    copy_tb,
    drop_step,
    drop_tb,
    gpu,
    head,
    step,
    sub,
    tb,
)


@dataclass(frozen=True)
class Mistake:
    """A wrong file, and why it is rejected.

    ``check`` is the family that must find it ("" where no runtime reads the text at all, with the
    line it is on in ``where``), ``says`` a part of the message, ``where`` the place.
    """

    name: str
    text: str
    check: str
    says: str
    where: str = ""
    target: str = "msccl"


Rows = list[tuple[object, ...]]
"""Edits of one right file: (name, edit, check, says[, where[, target]])."""


def _of(base: str, rows: Rows) -> list[Mistake]:
    """Return the mistakes that edits make of the right file of this name."""
    found = []
    for name, edit, *reason in rows:
        assert callable(edit)
        changed = edit(RIGHT[base])
        assert changed != RIGHT[base], name
        found.append(Mistake(f"{base}: {name}", changed, *reason))  # type: ignore[arg-type]
    return found


CROWD: Edit = sub("<step ", "<step " + " ".join(f'a{k}="1"' for k in range(7)) + " ")
"""A step with seven attributes more than it has."""

LEXICAL: Rows = [
    ("tab", sub("  <gpu", "\t<gpu"), "", "'<' is expected", ":2:1"),
    ("declaration", lambda t: '<?xml version="1.0"?>\n' + t, "", "declaration", ":1:1"),
    ("byte-order mark", lambda t: "\ufeff" + t, "", "is expected", ":1:1"),
    ("text between elements", sub("  <tb", "  x <tb"), "", "is expected", ":3:5"),
    ("text at the end", lambda t: t + "end", "", "is expected"),
    ("newline in a tag", sub(" proto", "\nproto"), "", "'>' is expected"),
    ("single quotes", sub('"test"', "'test'"), "", "single quotes"),
    ("equals sign in a comment", lambda t: "<!--a=b-->" + t, "", "comment"),
    ("a child in a step", sub('hasdep="0"/>', 'hasdep="0"><x/></step>'), "", "crash"),
    ("the root is not algo", lambda t: t.replace("algo", "other"), "", "<algo> must begin"),
    ("seventeen attributes", CROWD, "", "'hasdep' of <step> is missing", ":4:7"),
    ("a long name", sub("<tb ", "<" + "t" * 300 + " "), "", "254"),
    ("truncated", lambda t: t[:-40], "", "inside a tag"),
    ("wrong end tag", sub("</tb>", "</gpu>"), "", "</tb> must stand"),
    (
        "no deps on a nop",
        both(add_step(0, 0, 0, "nop"), step(0, 0, 0, deps=None)),
        "",
        "'deps' of <step>",
    ),
    ("unknown type", step(0, 0, 0, type="send"), "", "unknown type"),
    ("the type ra", step(0, 1, 0, type="ra"), "", "unknown type 'ra'"),
    ("unknown buffer on an ignored side", step(0, 0, 0, dstbuf="q"), "", "unknown dstbuf"),
    ("protocol in small letters", head(proto="simple"), "", "unknown proto"),
    ("collective in capitals", head(coll="AllGather"), "", "unknown coll"),
    ("a rank is missing", head(ngpus=3), "", "got none of rank 2"),
    ("a rank is there twice", gpu(1, id=0), "", "second <gpu> with id 0"),
]


def lexical() -> list[Mistake]:
    """The runtimes' reader is no XML reader."""
    return _of(
        "exchange",
        LEXICAL,
    )


NUMBERS: Rows = [
    (
        "octal offset",
        step(0, 0, 1, srcoff="0", dstoff="010"),
        "bounds",
        "s[8]",
        "rank 0 tb 0 step 1",
    ),
    ("hexadecimal count", step(0, 0, 0, cnt="0x2"), "connections", "sends 2"),
    (
        "a word as channel",
        both(head(nchannels=2), tb(0, 0, chan="one"), tb(1, 0, chan="1")),
        "connections",
        "has no receiving block",
    ),
    ("offset of 17 bits", step(0, 0, 0, srcoff=65536), "result", "holds", "rank 1 tb 3"),
    ("offset of 16 bits", step(0, 0, 0, srcoff=40000), "bounds", "i[-25536]"),
    ("depid of 8 bits", step(0, 0, 2, depid=256 + 1), "waits", "step 4 of tb 1"),
    ("deps of 16 bits", step(0, 0, 2, deps=65536 + 30000), "waits", "waits for step 30000"),
    (
        "garbage as deps",
        both(step(0, 0, 0, hasdep=1), step(0, 3, 0, deps="last")),
        "races",
        "s[0] is unordered",
    ),
    ("count of 72", step(0, 0, 0, cnt=72), "reading", "cnt 72 is outside"),
    ("negative count", step(0, 0, 0, cnt=-1), "reading", "cnt -1 is outside"),
    ("hasdep of 2", step(0, 0, 1, hasdep=2), "reading", "hasdep must be 0 or 1"),
    ("negative s", step(0, 0, 0, s=-1), "reading", "s is negative"),
]


def numbers() -> list[Mistake]:
    """What C makes of a number, and narrow fields."""
    return _of(
        "pairs LL",
        NUMBERS,
    )


STRUCTURE: Rows = [
    ("a gap in the ids", tb(0, 2, id=3), "structure", "2 is missing", "rank 0 tb 3"),
    ("an id twice", tb(0, 2, id=1), "structure", "there twice"),
    ("a negative id", tb(0, 0, id=-1), "structure", "missing or there twice"),
    ("sends to itself", tb(1, 0, send=1), "structure", "send peer 1", "rank 1 tb 0"),
    (
        "a peer beyond the ranks",
        tb(0, 0, send=3),
        "structure",
        "send peer 3",
        "rank 0 tb 0",
        "rccl",
    ),
    ("peer -2", tb(0, 0, recv=-2), "structure", "receive peer -2"),
    (
        "sends without a peer",
        tb(0, 0, send=-1),
        "structure",
        "expected a send peer",
        "rank 0 tb 0 step 0",
    ),
    (
        "receives without a peer",
        tb(0, 0, recv=-1),
        "structure",
        "expected a receive peer",
        "rank 0 tb 0 step 1",
    ),
    (
        "a channel that is not connected",
        tb(0, 0, chan=1),
        "limits",
        "not below nchannels",
        "rank 0 tb 0",
    ),
    ("too many channels", head(nchannels=33), "limits", "nchannels is 33"),
    (
        "the channel beyond the last",
        both(head(nchannels=33), tb(0, 0, chan=32)),
        "limits",
        "has 1 … 32",
    ),
    ("no channel", head(nchannels=0), "limits", "nchannels is 0"),
    (
        "two blocks send on one connection",
        copy_tb(0, 0, recv=-1),
        "structure",
        "receives: expected a receive peer",
        "rank 0 tb 3",
    ),
    ("two blocks on both ends", copy_tb(0, 0), "connections", "share the sending end"),
    (
        "a peer declared on one side",
        both(head(nchannels=2), tb(0, 2, send=1, chan=1)),
        "connections",
        "has no receiving block",
    ),
    (
        "an expected peer that never sends",
        both(head(nchannels=2), tb(0, 2, recv=1, chan=1)),
        "connections",
        "has no sending block",
    ),
    (
        "the other channel",
        both(head(nchannels=2), tb(0, 0, chan=1)),
        "connections",
        "has no receiving block",
    ),
    (
        "unequal counts",
        step(0, 0, 0, cnt=2),
        "connections",
        "takes 1 chunks",
        "rank 1 tb 0",
    ),
    ("a send too many", add_step(0, 0, 1, "s"), "connections", "2 sends but 1 receives"),
    ("a receive too few", drop_step(0, 0, 1), "connections", "1 sends but 0 receives"),
    ("a send too few", drop_step(0, 0, 0), "connections", "0 sends but 1 receives"),
    ("no block for a peer", drop_tb(2, 2), "result", "never written", "rank 2"),
    (
        "no thread block at all",
        both(drop_tb(0, 0), drop_tb(0, 0), drop_tb(0, 0)),
        "limits",
        "no thread block",
        "rank 0",
    ),
]


def structure() -> list[Mistake]:
    """Thread blocks and connections."""
    return _of(
        "alltoall",
        STRUCTURE,
    )


DEPENDENCES: Rows = [
    (
        "nobody publishes",
        step(0, 0, 1, hasdep=0),
        "waits",
        "publishes nothing",
        "rank 0 tb 2 step 1",
    ),
    ("a step beyond the end", step(0, 0, 2, deps=9), "waits", "step 9 of tb 2"),
    ("a block that is not there", step(0, 0, 2, depid=5), "waits", "does not exist"),
    (
        "waits for its own future",
        both(step(0, 0, 0, depid=0, deps=1)),
        "deadlock",
        "deadlock at every message size",
        "rank 0 tb 0",
    ),
    (
        "two blocks wait for each other",
        step(0, 0, 1, depid=2, deps=2),
        "deadlock",
        "waits for the flag of rank 0 tb",
    ),
    ("the wait is left out", step(0, 0, 2, depid=-1), "races", "unordered"),
    ("waits for the wrong block", step(0, 2, 1, depid=0), "races", "s[1] is unordered"),
    ("one of two waits is left out", drop_step(0, 2, 0), "races", "s[0] is unordered"),
    (
        "waits for a step too early",
        both(step(0, 0, 0, hasdep=1), step(0, 2, 0, deps=0)),
        "races",
        "s[0] is unordered",
    ),
    (
        "any flag will do",
        both(step(0, 1, 0, hasdep=1), step(0, 2, 1, deps=-1)),
        "races",
        "s[1] is unordered",
    ),
    (
        "a nop publishes",
        both(step(0, 2, 0, hasdep=1), step(0, 2, 2, hasdep=0)),
        "waits",
        "publishes nothing",
    ),
    (
        "a nop, and nothing of its own",
        step(0, 2, 1, depid=-1),
        "reading",
        "none of its own",
    ),
    ("a nop without a dependence", add_step(0, 0, 0, "nop"), "waits", "step 2 of tb 0"),
    (
        "the nop at the end",
        both(drop_step(0, 2, 0), add_step(0, 2, 2, "nop", depid=0, deps=1)),
        "races",
        "s[0] is unordered",
    ),
    (
        "a nop between fused re",
        both(
            drop_step(0, 2, 0),
            step(0, 2, 0, depid=0, deps=1),
            add_step(0, 2, 1, "nop", depid=1, deps=1),
            step(0, 0, 2, deps=1),
            step(0, 1, 2, deps=1),
        ),
        "races",
        "s[1] is unordered",
    ),
    (
        "s counts from one, and deps with it",
        both(*(step(0, 0, k, s=k + 1) for k in range(4)), step(0, 2, 0, deps=2)),
        "waits",
        "step 2 of tb 0",
    ),
    (
        "s numbers that say something else",
        both(step(0, 2, 2, s=7), *(step(0, k, 2, deps=7) for k in range(2))),
        "waits",
        "step 7 of tb 2",
    ),
]


def dependences() -> list[Mistake]:
    """Waits, flags and their numbering."""
    return _of(
        "pairs",
        DEPENDENCES,
    )


def _split_alltoall(**changes: object) -> str:
    """An alltoall that receives in other blocks than it sends from: right out of place."""
    gpus = []
    for rank in range(2):
        peer = 1 - rank
        send = Tb(peer, -1).step("s", f"i{peer}", "o0")
        receive = Tb(-1, peer).step("r", "i0", f"o{peer}")
        gpus.append(Gpu(2, 2, 0, [send, receive, Tb().step("cpy", f"i{rank}", f"o{rank}")]))
    return algo(gpus, "alltoall", 2, **changes)


LATE = both(step(1, 0, 1, hasdep=0), step(1, 0, 0, hasdep=1))
"""The flag of a step is published by the one before it."""

HAZARDS_RELAYED: Rows = [
    (
        "reads before the sum",
        both(step(2, 0, 1, hasdep=0), step(2, 0, 0, hasdep=1), step(2, 1, 0, deps=0)),
        "races",
        "s[0] is unordered",
        "rank 2 tb",
    ),
    (
        "overwrites what is sent",
        add_step(1, 1, 0, "cpy", srcbuf="i", dstbuf="s"),
        "races",
        "s[0] is unordered",
        "rank 1 tb",
    ),
    ("two writers", add_step(2, 0, 2, "cpy", dstbuf="o"), "races", "o[0] is unordered"),
    (
        "the input is destroyed",
        add_step(0, 0, 1, "cpy", srcbuf="o", dstbuf="i"),
        "races",
        "o[0] is unordered",
    ),
    (
        "the input is destroyed at the end",
        add_step(0, 1, 1, "cpy", srcbuf="o", dstbuf="i"),
        "result",
        "i[0] is overwritten",
        "rank 0 tb 1 step 1",
    ),
    (
        "the input is overwritten in order",
        add_step(1, 0, 3, "cpy", srcbuf="s", dstbuf="i"),
        "result",
        "i[0] is overwritten",
        "rank 1 tb 0 step 3",
    ),
    (
        "the input is summed into",
        both(LATE, step(1, 0, 1, srcbuf="s", dstbuf="i")),
        "result",
        "the input must not change",
    ),
]
HAZARDS_RING_ALLGATHER: Rows = [
    (
        "the own chunk is never copied",
        head(inplace=0, outofplace=1),
        "result",
        "which was not written",
    ),
    (
        "claims out of place too",
        head(inplace=1, outofplace=1),
        "result",
        "out of place",
        "",
        "executor",
    ),
]
HAZARDS_EXCHANGE: Rows = [
    (
        "no copy of the own chunk",
        drop_step(0, 1, 0),
        "result",
        "o[0] is never written",
        "rank 0",
    ),
]


def hazards() -> list[Mistake]:
    """Unordered accesses, stale data, aliasing."""
    return [
        *_of(
            "relayed",
            HAZARDS_RELAYED,
        ),
        Mistake(
            "claims both placements",
            _split_alltoall(inplace=1),
            "races",
            "in place",
            "",
            "executor",
        ),
        Mistake(
            "works out of place only",
            _split_alltoall(inplace=1, outofplace=0),
            "races",
            "o[1] is unordered",
            "rank 0 tb",
            "rccl",
        ),
        *_of(
            "ring allgather",
            HAZARDS_RING_ALLGATHER,
        ),
        *_of(
            "exchange",
            HAZARDS_EXCHANGE,
        ),
    ]


ADDRESSES_EXCHANGE: Rows = [
    ("offset -1", step(0, 0, 0, srcoff=-1), "bounds", "i[-1]", "rank 0 tb 0 step 0"),
    (
        "a count beyond the end",
        step(0, 1, 0, cnt=2),
        "bounds",
        "i[0 … 1]",
        "rank 0 tb 1 step 0",
    ),
    ("an offset beyond the end", step(0, 0, 1, dstoff=2), "bounds", "o[2]"),
    ("scratch that is not there", step(0, 1, 0, dstbuf="s"), "bounds", "0 chunks of s"),
    (
        "declared for another collective",
        gpu(0, i_chunks=2),
        "bounds",
        "to be nchunksperloop",
        "rank 0",
    ),
    (
        "the whole message declared as input, elsewhere",
        both(gpu(0, i_chunks=2), step(0, 0, 0, srcoff=1)),
        "bounds",
        "1 chunks of i are there",
        "rank 0 tb 0 step 0",
        "executor",
    ),
    ("negative scratch", gpu(0, s_chunks=-1), "bounds", "s_chunks: expected 0 or more"),
    (
        "too few chunks declared",
        gpu(0, o_chunks=1),
        "bounds",
        "1 chunks of o are declared",
    ),
    (
        "no chunks in the message",
        head(nchunksperloop=0),
        "sizes",
        "nchunksperloop: expected 1 or more, got 0",
    ),
]
ADDRESSES_RING_ALLREDUCE: Rows = [
    (
        "rrs beyond the end",
        step(0, 0, 1, srcoff=4),
        "bounds",
        "i[4]",
        "rank 0 tb 0 step 1",
    ),
    (
        "rrc is never tested",
        both(step(0, 0, 3, type="rrc", srcoff=90)),
        "bounds",
        "i[90]",
        "rank 0 tb 0 step 3",
    ),
    (
        "a copy over itself",
        add_step(0, 0, 0, "cpy", srcoff=0, dstbuf="i", dstoff=1, cnt=2),
        "bounds",
        "overlap",
        "rank 0 tb 0 step 0",
    ),
]
ADDRESSES_BROADCAST: Rows = [
    (
        "a copy over its in-place alias",
        both(head(inplace=1), step(1, 3, 0, dstoff=1, srcoff=0), gpu(1, o_chunks=3)),
        "bounds",
        "overlap",
        "rank 1 tb 3 step 0",
        "rccl",
    ),
]


def addresses() -> list[Mistake]:
    """Offsets, counts and declared sizes."""
    return [
        *_of(
            "exchange",
            ADDRESSES_EXCHANGE,
        ),
        *_of(
            "ring allreduce",
            ADDRESSES_RING_ALLREDUCE,
        ),
        *_of(
            "broadcast",
            ADDRESSES_BROADCAST,
        ),
    ]


RESULTS_RING_ALLREDUCE: Rows = [
    (
        "rrc adds the sender's slice",
        both(*(step(r, 0, 3, srcoff=r) for r in range(4))),
        "result",
        "the local src",
    ),
    ("a contribution is lost", step(0, 0, 1, type="rcs"), "result", "wanted is"),
    ("a contribution twice", step(0, 0, 4, type="rrcs"), "result", "2·rank"),
]
RESULTS_PAIRS: Rows = [
    ("the same source twice", step(0, 2, 1, srcoff=1), "result", "2·rank 2's i[0]"),
    (
        "scratch that nobody wrote",
        both(gpu(0, s_chunks=3), step(0, 2, 2, srcoff=2)),
        "result",
        "which was not written",
    ),
]
RESULTS_EXCHANGE: Rows = [
    (
        "swapped outputs",
        both(step(0, 0, 1, dstoff=0), step(0, 1, 0, dstoff=1)),
        "result",
        "o[0] holds rank 1's i[0]; wanted is rank 0's i[0]",
        "rank 0 tb 0 step 1",
    ),
    (
        "sends what it received",
        both(
            step(0, 0, 0, type="r", dstoff=1),
            step(0, 0, 1, type="s", srcbuf="o", srcoff=1),
        ),
        "result",
        "wanted is rank 0's i[0]",
        "rank 1",
    ),
]
RESULTS_BROADCAST: Rows = [
    (
        "every rank receives",
        both(
            head(nchannels=2),
            copy_tb(0, 0, send=1, recv=-1, chan=1),
            step(0, 1, 0, type="s"),
            copy_tb(1, 3, recv=0, chan=1),
            step(1, 4, 0, type="r"),
        ),
        "result",
        "no rank can be the root",
    ),
]
RESULTS_FUSED_REDUCE: Rows = [
    (
        "fused re with two counts",
        step(0, 4, 7, cnt=2),
        "bounds",
        "o[0 … 1]",
        "rank 0 tb 4",
    ),
    (
        "summed at the wrong rank",
        step(0, 4, 0, srcoff=0, dstbuf="s", dstoff=0),
        "races",
        "unordered",
    ),
]


def results() -> list[Mistake]:
    """Sound programs that compute something else."""
    return [
        *_of(
            "ring allreduce",
            RESULTS_RING_ALLREDUCE,
        ),
        *_of(
            "pairs",
            RESULTS_PAIRS,
        ),
        *_of(
            "exchange",
            RESULTS_EXCHANGE,
        ),
        *_of(
            "broadcast",
            RESULTS_BROADCAST,
        ),
        *_of(
            "fused reduce",
            RESULTS_FUSED_REDUCE,
        ),
    ]


def _many_steps(number: int) -> str:
    """An allreduce of one rank that copies its chunk over and over."""
    block = Tb()
    for k in range(number):
        block.step("cpy", "i0", "o0", s=min(k, 60))
    return algo([Gpu(1, 1, 0, [block])], "allreduce", 1)


def _many_blocks(number: int) -> str:
    blocks = [Tb().step("cpy", "i0", "o0")] + [Tb() for _ in range(number - 1)]
    return algo([Gpu(1, 1, 0, blocks)], "allreduce", 1)


def _star(leaves: int) -> str:
    """A broadcast whose root sends to many ranks on one channel."""
    blocks = [Tb(k, -1).step("s", "i0", "o0") for k in range(1, leaves + 1)]
    gpus = [Gpu(1, 1, 0, [*blocks, Tb().step("cpy", "i0", "o0")])]
    gpus += [Gpu(1, 1, 0, [Tb(-1, 0).step("r", "i0", "o0")]) for _ in range(leaves)]
    return algo(gpus, "broadcast", 1)


def _high_wait(number: int) -> str:
    """A wait for a thread block of a large number."""
    blocks = [Tb().step("cpy", "i0", "o0", dep=(number, 0))] + [Tb() for _ in range(number - 1)]
    blocks.append(Tb().step("cpy", "i0", "s0", hasdep=1))
    return algo([Gpu(1, 1, 1, blocks)], "allreduce", 1)


LIMITS_RING_ALLGATHER: Rows = [
    (
        "fused steps on rccl",
        lambda t: t + "\n",
        "limits",
        "rccl refuses rcs at launch",
        "",
        "rccl",
    ),
]


def limits() -> list[Mistake]:
    """What a runtime has room for, and what it can execute."""
    return [
        Mistake("65 steps", _many_steps(65), "limits", "65 steps; rccl", "rank 0 tb 0", "rccl"),
        Mistake("257 steps", _many_steps(257), "limits", "257 steps; msccl has at most 256"),
        Mistake("1025 steps", _many_steps(1025), "limits", "1024 steps in a tb crash"),
        Mistake("65 blocks", _many_blocks(65), "limits", "65 thread blocks", "rank 0", "rccl"),
        Mistake("217 blocks", _many_blocks(217), "limits", "217 thread blocks", "rank 0"),
        Mistake("33 senders on a channel", _star(33), "limits", "33 blocks send on channel 0"),
        Mistake(
            "more waits than threads",
            fused_reduce(40, proto="LL", nthreads=32),
            "sizes",
            "nthreads: expected 40 or more",
        ),
        Mistake(
            "depid beyond 7 bits",
            _high_wait(130),
            "waits",
            "does not exist",
            "rank 0 tb 0 step 0",
            "executor",
        ),
        Mistake(
            "16 fused re under Simple",
            fused_reduce(16),
            "limits",
            "16 fused re under Simple",
            "rank 0 tb 16",
        ),
        Mistake(
            "24 fused re, the limit is counted once per block",
            fused_reduce(40, proto="LL"),
            "limits",
            "24 fused re",
        ),
        *_of(
            "ring allgather",
            LIMITS_RING_ALLGATHER,
        ),
    ]


SIZES_EXCHANGE: Rows = [
    ("least above most", head(minBytes=9, maxBytes=8), "sizes", "at most maxBytes"),
    ("no size at all", head(minBytes=64, maxBytes=64), "sizes", "below maxBytes"),
    ("maxBytes 0", head(maxBytes=0), "sizes", "below maxBytes"),
    ("negative sizes", head(minBytes=-2), "sizes", "expected 0 or more"),
    (
        "neither placement",
        head(inplace=0, outofplace=0),
        "sizes",
        "got neither",
        "",
        "rccl",
    ),
    ("threads", head(nthreads=100), "sizes", "multiple of 32"),
    ("no name", head(name=None), "reading", "'name' of <algo> is missing"),
    ("no outofplace", head(outofplace=None), "reading", "'outofplace'", "", "executor"),
    ("no maxBytes", head(maxBytes=None), "reading", "'maxBytes'", "", "rccl"),
    ("the other spelling", head(coll="reducescatter"), "reading", "unknown there"),
    (
        "a name of one runtime",
        head(coll="custom"),
        "reading",
        "unknown there",
        "",
        "rccl",
    ),
    ("a collective without counts", head(coll="gather"), "reading", "unknown there"),
]
SIZES_ALLTOALL: Rows = [
    ("in place", head(inplace=1, outofplace=0), "sizes", "refuses alltoall in place"),
    ("called 2D", head(name="2D"), "sizes", "named 2D"),
]


def sizes() -> list[Mistake]:
    """When the file is selected, and deadlocks from some size on."""
    return [
        *_of(
            "exchange",
            SIZES_EXCHANGE,
        ),
        *_of(
            "alltoall",
            SIZES_ALLTOALL,
        ),
        Mistake(
            "both ends send first",
            both_send_first(3),
            "deadlock",
            "Right for messages up to 6291456 bytes on msccl",
        ),
        Mistake(
            "both ends send first, on rccl under LL",
            both_send_first(9, proto="LL"),
            "deadlock",
            "Right for messages up to 147456 bytes on rccl",
            "",
            "rccl",
        ),
        Mistake(
            "receives before it sends",
            both_send_first(1)
            .replace('type="s"', 'type="x"')
            .replace('"r"', '"s"')
            .replace('"x"', '"r"'),
            "deadlock",
            "deadlock at every message size",
        ),
    ]


def mistakes() -> list[Mistake]:
    """All of them."""
    return [
        *lexical(),
        *numbers(),
        *structure(),
        *dependences(),
        *hazards(),
        *addresses(),
        *results(),
        *limits(),
        *sizes(),
    ]
