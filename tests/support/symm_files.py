"""Files for torch symmetric memory, and kernels and programs that are wrong in one place."""

import random
import re
from dataclasses import dataclass
from functools import cache

import plans

from weft.backends.formats.torch_symm.format import TorchSymm
from weft.backends.formats.torch_symm.model.machine import KernelRun, Trial, run_kernel
from weft.backends.formats.torch_symm.read import read_program
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCL


@dataclass(frozen=True)
class Spoiled:
    """A change of the kernel's text that takes a fence away, and where the fence is needed."""

    before: str
    after: str
    protocol: Protocol = Protocol.SIMPLE
    program: str = "ring"


FENCES = {
    "a signal releases": Spoiled('sem="release", scope="sys"', 'sem="relaxed", scope="sys"'),
    "a signal is for all GPUs": Spoiled('sem="release", scope="sys"', 'sem="release", scope="gpu"'),
    "a wait acquires": Spoiled('sem="acquire", scope=SCOPE', 'sem="relaxed", scope=SCOPE'),
    "a wait is for all GPUs": Spoiled('reached(flag, value, "sys")', 'reached(flag, value, "gpu")'),
    "a wait waits": Spoiled("- value < 0:", "- value < -1000000:"),
    "a wait is for the last signal": Spoiled("- value < 0:", "- value < -1:"),
    "threads meet at a nop": Spoiled(
        "MEET:\n            tl.debug_barrier()", "MEET:\n            pass"
    ),
    "a semaphore releases": Spoiled(
        'sem="release", scope="gpu"', 'sem="relaxed", scope="gpu"', program="two shot"
    ),
    "launches are counted": Spoiled("tl.store(flags + block, turn + 1)", "pass"),
    "signals go on from launch to launch": Spoiled("value = turn *", "value = 0 *"),
    "threads meet before the launch is counted": Spoiled(
        "tl.debug_barrier()  # all", "pass  # all", program="broadcast"
    ),
    "packets are of this launch": Spoiled("!= mark", "== 0", Protocol.LL),
    "all packets are awaited": Spoiled(
        "!= mark) & mask)", "!= mark) & mask & (tl.arange(0, 4) < 1))", Protocol.LL
    ),
    "two halves alternate": Spoiled("(turn & 1) * half", "0 * half", Protocol.LL, "one shot"),
}
"""Every fence of the kernel: without it, some order of some program goes wrong."""


@cache
def file(
    name: str, protocol: Protocol = Protocol.SIMPLE, *, in_place: bool = False, **options: bool
) -> str:
    """The file of one of ``plans``' programs."""
    program = plans.program(name, protocol, in_place)
    return TorchSymm(**options).emit(program, MSCCL, None)  # type: ignore[arg-type]


def problem(text: str, orders: int, seed: int = 0) -> str | None:
    """What the memory model finds wrong with a file."""
    program = read_program(text, "file")
    done = run_kernel(text, program.plan, program.collective, orders=orders, seed=seed)
    return None if done.ok else done.detail


@cache
def right(name: str, protocol: Protocol) -> bool:
    """Whether the memory model finds nothing wrong with a file."""
    return problem(file(name, protocol), 1) is None


def mutated(text: str, rng: random.Random) -> tuple[str, str] | None:
    """A file with one mistake in its program, and what it is; None if the chosen line has no such.

    An operation is dropped, an offset moved, a channel exchanged, two operations swapped.
    """
    head, body, tail = re.split(r"(?<=PROGRAM = \(\n)|(?=\n\)\n)", text, maxsplit=2)
    lines = re.findall(r'"[^"]*"', body)
    line = rng.choice(lines)
    rank, blocks = line.strip('"').split(": ")[0], line.strip('"').split(": ")[1].split(" | ")
    block = rng.randrange(len(blocks))
    ops = blocks[block].split("; ")
    k = rng.randrange(len(ops))
    what = rng.choice(("drop", "offset", "channel", "swap"))
    if what == "drop":
        told, made = ops[k], [*ops[:k], *ops[k + 1 :]]
    elif what == "swap" and k + 1 < len(ops):
        told, made = f"{ops[k]} | {ops[k + 1]}", [*ops[:k], ops[k + 1], ops[k], *ops[k + 2 :]]
    elif what == "offset" and "[" in ops[k]:
        at = rng.choice(list(re.finditer(r"\[(\d+)(?::\d+)?\]", ops[k])))
        moved = f"[{int(at[1]) + 1}]"
        told, made = ops[k], list(ops)
        made[k] = ops[k][: at.start()] + moved + ops[k][at.end() :]
    elif what == "channel" and re.match(r"(signal|wait) ", ops[k]):
        told, made = ops[k], list(ops)
        made[k] = re.sub(r"\d+$", lambda m: str(int(m[0]) + 1), ops[k])
    else:
        return None
    if made == ops:
        return None
    blocks[block] = "; ".join(made)
    return head + body.replace(line, f'"{rank}: {" | ".join(blocks)}"', 1) + tail, f"{what}: {told}"


def assembled(text: str) -> list[list[list[tuple[int, ...]]]]:
    """A file's operations as numbers, by rank and block."""
    program = read_program(text, "file")
    return KernelRun(text, program.plan, program.collective, Trial(), 0).code
