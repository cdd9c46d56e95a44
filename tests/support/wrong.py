"""A mutator of right files: each known way to be wrong, and the reason a checker must give.

The ways are those that the runtimes' sources show: what their parsers reject, what they accept
silently and then crash, hang or compute wrong data on. Those that edits of an element make are in
wrong.txt, a line each.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msccl_files import Gpu, Tb, algo, both_send_first
from right import RIGHT, fused_reduce
from xml_edit import Edit, add_step, both, copy_tb, drop_step, drop_tb, gpu, head, step, tb


@dataclass(frozen=True)
class Mistake:
    """A wrong file, and why it is rejected.

    ``check`` is the family that must find it, ``says`` a part of the message, ``where`` the place.
    """

    name: str
    text: str
    check: str
    says: str
    where: str = ""
    target: str = "msccl"


EDITS: dict[str, Callable[..., Edit]] = {
    one.__name__: one for one in (add_step, copy_tb, drop_step, drop_tb, gpu, head, step, tb)
}


def _edit(words: str) -> Edit:
    """Return the edit that a line of wrong.txt means: ``step 0 0 1 cnt=2; head proto=``."""
    made = []
    for one in words.split("; "):
        verb, *rest = one.split()
        places = [int(word) if word.isdigit() else word for word in rest if "=" not in word]
        changes = dict(word.split("=") for word in rest if "=" in word)
        made.append(EDITS[verb](*places, **{key: x or None for key, x in changes.items()}))
    return both(*made)


def _edited() -> Iterator[Mistake]:
    """Yield the mistakes of wrong.txt."""
    base = ""
    for line in Path(__file__).with_name("wrong.txt").read_text().splitlines():
        if line.startswith("["):
            base = line.strip("[]")
        elif line and not line.startswith("#"):
            name, words, *reason = line.split(" | ")
            yield _of(base, name, _edit(words), *reason)


def _of(base: str, name: str, edit: Edit, *reason: str) -> Mistake:
    """Return the mistake that an edit makes of the right file of this name."""
    changed = edit(RIGHT[base])
    assert changed != RIGHT[base], name
    return Mistake(f"{base}: {name}", changed, *reason)


def _split_alltoall(**changes: object) -> str:
    """An alltoall that receives in other blocks than it sends from: right out of place."""
    gpus = []
    for rank in range(2):
        peer = 1 - rank
        send = Tb(peer, -1).step("s", f"i{peer}", "o0")
        receive = Tb(-1, peer).step("r", "i0", f"o{peer}")
        gpus.append(Gpu(2, 2, 0, [send, receive, Tb().step("cpy", f"i{rank}", f"o{rank}")]))
    return algo(gpus, "alltoall", 2, **changes)


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


def _placements() -> list[Mistake]:
    """Aliasing in files of our own."""
    twice, elsewhere = _split_alltoall(inplace=1), _split_alltoall(inplace=1, outofplace=0)
    return [
        Mistake("claims both placements", twice, "races", "in place", "", "executor"),
        Mistake(
            "works out of place only", elsewhere, "races", "o[1] is unordered", "rank 0 tb", "rccl"
        ),
    ]


def _limits() -> list[Mistake]:
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
        _of(
            "ring allgather",
            "fused steps on rccl",
            lambda t: t + "\n",
            "limits",
            "rccl refuses rcs at launch",
            "",
            "rccl",
        ),
    ]


def _deadlocks() -> list[Mistake]:
    """Deadlocks from some size on."""
    return [
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
    return [*_edited(), *_placements(), *_limits(), *_deadlocks()]
