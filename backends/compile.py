"""Compile a schedule or an algorithm: the passes in their order, wider where limits demand it.

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
from dataclasses import dataclass, field, replace

import numpy as np

from weft.dsl.algorithm import Algorithm
from weft.dsl.collective import MULTIROOT, ROOTED, Collective
from weft.dsl.errors import UserError
from weft.dsl.program import Program, Protocol
from weft.dsl.schedule import Schedule

from .passes.aggregate import Aggregate
from .passes.channels import Channels, Spread
from .passes.flow import Flow
from .passes.instances import Instances, Replication
from .passes.lower import Lower
from .passes.threadblocks import Pairing, ThreadBlocks
from .passes.trace import Trace
from .passes.weave import Weave
from .pipeline import DEFAULT_PASSES, ProgramPass, run_pipeline
from .target import MSCCL, Target

ATTEMPTS = 8
"""How often the passes are run again with more lanes or tighter blocks."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What the compiler may choose, and what the user wants.

    ``instances``: copies side by side; None: what the algorithm asks for, or one. ``replication``:
    of which chunks. ``pairing``: which ends share thread blocks. ``protocol``: None: what the
    algorithm asks for, or Simple. ``lanes``: channels per connection (0: as fusion needs);
    ``spread``: whether chains get channels of their own.
    ``count``: chunks that may travel together (0: as many as are safe). ``passes`` run on the
    program; ``verify`` is called with the program after every one of them.
    """

    target: Target = MSCCL
    instances: int | None = None
    replication: Replication = Replication.BATCHED
    pairing: Pairing = Pairing.AUTO
    in_place: bool = False
    protocol: Protocol | None = None
    lanes: int = 0
    spread: Spread = Spread.LANES
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
    o = _settled(options or CompileOptions(), 1, Protocol.SIMPLE)
    c = schedule.collective
    o = replace(o, name=o.name or _label([schedule.topology.name, str(c.kind)], c, o))
    return compile_flow(Lower(o.in_place).apply(schedule, o.target), o)


def compile_algorithm(algorithm: Algorithm, options: CompileOptions | None = None) -> Program:
    """The program of an algorithm for a target.

    Raises:
        UserError: something the target, or the form, cannot express, in words.
    """
    o = _settled(options or CompileOptions(), algorithm.instances, algorithm.protocol)
    if o.in_place and not algorithm.in_place:
        raise UserError(
            f"the algorithm {algorithm.name} is written out of place",
            hint="compile it without in_place, or write it with in_place=True",
        )
    o = replace(o, name=o.name or _label([algorithm.name], algorithm.collective, o))
    return compile_flow(Trace().apply(algorithm, o.target), o)


def compile_flow(flow: Flow, o: CompileOptions) -> Program:
    """The program of a flow; all options are settled.

    Raises:
        UserError: something the target cannot express, in words.
    """
    assert o.instances is not None
    assert o.protocol is not None
    target = o.target
    flow = Instances(o.instances, o.replication).apply(flow, target)
    # The steps of one block are known at the end only; a connection that needs more gets lanes.
    per_lane, pair_all = target.max_steps, False
    for _ in range(ATTEMPTS):
        placed = Channels(o.lanes, per_lane, o.protocol, o.spread, o.count).apply(flow, target)
        placed = ThreadBlocks(pair_all, o.protocol, o.pairing, o.count).apply(placed, target)
        placed = Aggregate(o.protocol, o.count).apply(placed, target)
        # Every message stays one instruction of its sender: too many need no writing out.
        steps, blocks = _most_messages(placed), 0
        if steps <= target.max_steps or per_lane == 1:
            program = Weave(o.name, o.protocol).apply(placed, target)
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


def _settled(o: CompileOptions, instances: int, protocol: Protocol) -> CompileOptions:
    """The options with what their user left to the input."""
    return replace(
        o, instances=instances if o.instances is None else o.instances,
        protocol=o.protocol or protocol,
    )  # fmt: skip


def _most_messages(flow: Flow) -> int:
    """The most messages of one connection."""
    assert flow.blocks is not None
    return int(np.bincount(flow.blocks.connection).max(initial=0))


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


def _label(words: list[str], collective: Collective, options: CompileOptions) -> str:
    """What the file calls itself; with the roots, which the format has no other place for."""
    if collective.kind in ROOTED:
        words.append(f"root{collective.roots[0]}")
    elif collective.kind in MULTIROOT:
        words.append("roots" + "-".join(map(str, collective.roots)))
    if options.instances is not None and options.instances > 1:
        words.append(f"x{options.instances}")
    return "_".join("".join(c if c.isalnum() else "-" for c in w) for w in words)[:63]
