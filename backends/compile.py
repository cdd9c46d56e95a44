"""Compile a schedule: the passes in their order, retried wider where the target's limits demand it.

>>> from weft.dsl.topology import Topology, both_ways, gpu
>>> from weft.dsl.collective import make
>>> from weft.dsl.schedule import Schedule, Transfer
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25))
>>> s = Schedule.of(pair, make("allgather", 2), [Transfer(0, 0, 1, (0,)), Transfer(1, 1, 0, (1,))])
>>> compile_schedule(s, CompileOptions(instances=2)).message_chunks
4
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from weft.dsl.collective import MULTIROOT, ROOTED
from weft.dsl.errors import UserError
from weft.dsl.program import Program, Protocol
from weft.dsl.schedule import Schedule

from .passes.aggregate import Aggregate
from .passes.channels import Channels
from .passes.instances import Instances, Replication
from .passes.lower import Lower
from .passes.threadblocks import Pairing, ThreadBlocks
from .passes.weave import Weave
from .pipeline import DEFAULT_PASSES, ProgramPass, run_pipeline
from .target import MSCCL, Target

ATTEMPTS = 8
"""How often the passes are run again with more lanes or tighter blocks."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What the compiler may choose, and what the user wants.

    ``instances``: copies side by side, ``replication``: of which chunks. ``pairing``: which ends
    share thread blocks. ``lanes``: channels per connection (0: as fusion needs). ``count``: chunks
    that may travel together (0: as many as are safe). ``passes`` run on the program; ``verify`` is
    called with the program after every one of them.
    """

    target: Target = MSCCL
    instances: int = 1
    replication: Replication = Replication.BATCHED
    pairing: Pairing = Pairing.FEWEST
    in_place: bool = False
    protocol: Protocol = Protocol.SIMPLE
    lanes: int = 0
    count: int = 0
    name: str = ""
    passes: tuple[ProgramPass, ...] = DEFAULT_PASSES
    verify: Callable[[Program], None] | None = field(default=None, compare=False)


def compile_schedule(schedule: Schedule, options: CompileOptions | None = None) -> Program:
    """The program of a schedule for a target.

    Raises:
        UserError: something the target, or the form, cannot express, in words.
        CheckFailed: the schedule is wrong (a rank sends what it does not hold).
    """
    o = options or CompileOptions()
    target = o.target
    flow = Lower(o.in_place).apply(schedule, target)
    flow = Instances(o.instances, o.replication).apply(flow, target)
    label = o.name or _label(schedule, o)
    # The steps of one block are known at the end only; a connection that needs more gets lanes.
    per_lane, pair_all = target.max_steps, False
    for _ in range(ATTEMPTS):
        placed = Channels(o.lanes, per_lane, o.protocol).apply(flow, target)
        placed = ThreadBlocks(pair_all, o.protocol, o.pairing).apply(placed, target)
        placed = Aggregate(o.protocol, o.count).apply(placed, target)
        program = Weave(label, o.protocol).apply(placed, target)
        program = run_pipeline(program, target, o.passes, verify=o.verify)
        steps, blocks = sizes(program)
        if steps > target.max_steps and per_lane > 1:
            per_lane = max(1, per_lane * target.max_steps // (steps + target.max_steps // 8))
        elif blocks > target.max_blocks and not pair_all:
            pair_all = True
        else:
            break
    _refuse_large(steps, blocks, target)
    return program


def sizes(program: Program) -> tuple[int, int]:
    """The most steps of a block (nops for further dependences included), and blocks of a rank."""
    steps = max(
        (
            sum(max(1, len(instr.waits)) for instr in block.code)
            for rank in program.ranks
            for block in rank
        ),
        default=0,
    )
    return steps, max(len(rank.blocks) for rank in program.ranks)


def _refuse_large(steps: int, blocks: int, target: Target) -> None:
    limits = (
        (steps, target.max_steps, "steps in one thread block"),
        (blocks, target.max_blocks, "thread blocks on one rank"),
    )
    for value, limit, what in limits:
        if value > limit:
            raise UserError(
                f"the program needs {value} {what}; {target.name} takes {limit}",
                hint="fewer instances, fewer chunks, or another target",
            )


def _label(schedule: Schedule, options: CompileOptions) -> str:
    """What the file calls itself; with the roots, which the format has no other place for."""
    collective = schedule.collective
    words = [schedule.topology.name, str(collective.kind)]
    if collective.kind in ROOTED:
        words.append(f"root{collective.roots[0]}")
    elif collective.kind in MULTIROOT:
        words.append("roots" + "-".join(map(str, collective.roots)))
    if options.instances > 1:
        words.append(f"x{options.instances}")
    return "_".join("".join(c if c.isalnum() else "-" for c in w) for w in words)[:63]
