"""Compile a schedule, an algorithm or a program: the passes in order, wider where limits demand.

>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> from weft.dsl.nouns.collective import make
>>> from weft.dsl.nouns.schedule import Schedule, Transfer
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25))
>>> s = Schedule.of(pair, make("allgather", 2), [Transfer(0, 0, 1, (0,)), Transfer(1, 1, 0, (1,))])
>>> lower_schedule(s, CompileOptions(instances=2)).message_chunks
4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, cast

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.integers import integer
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import MULTIROOT, ROOTED, Collective
from weft.dsl.nouns.program import ABSENT, Program, Protocol, offsets, protocol_of
from weft.dsl.nouns.runtime import MSCCL, Target
from weft.dsl.nouns.runtime import target as target_of
from weft.dsl.nouns.schedule import Schedule, refuse_casts

from .analyses.flow import Flow
from .analyses.planned import Order
from .analyses.unroll import unrolled
from .passes.aggregate import Aggregate
from .passes.channels import Channels, Spread
from .passes.instances import Instances, Replication
from .passes.lift import Lift
from .passes.lower import Lower
from .passes.threadblocks import Pairing, ThreadBlocks
from .passes.trace import Trace, canonical
from .passes.weave import Weave
from .pipeline import DEFAULT_PASSES, Journal, Pass, of_form

AUTO: Final = "auto"
"""Instances that the front end must choose by a race (:mod:`~weft.backends.compile.choice`)."""

SETTLED: Mapping[str, Any] = MappingProxyType(
    {
        "pairing": Pairing.AUTO,
        "lanes": 0,
        "spread": Spread.LANES,
        "segments": 1,
        "order": Order.PRIORITY,
        "parts": 1,
    }
)
"""Settings of the fixed form; instances and protocol are the input's."""

ATTEMPTS = 8
"""Maximum number of reruns of the passes with more lanes or tighter blocks."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of the compiler.

    ``target`` and ``protocol`` may be given by name (``"rccl"``, ``"LL"``).
    ``form``: how the front end sets what is None below: ``"race"``: the fastest by simulation,
    where machine and size are known; ``"fixed"``: as here.
    ``instances``: copies side by side; None: as the algorithm requests, or one; ``"auto"``: by a
    race, or an error. ``replication``: of which chunks. ``pairing``: which ends share thread blocks
    (None: ``auto``). ``protocol``: None: as the algorithm requests, or Simple. ``lanes``:
    channels per connection (0, None: as fusion needs); ``spread``: whether chains get channels of
    their own (None: no). ``count``: chunks that may travel together (0: as many as are safe).
    ``segments``: into how many pieces every chunk of a schedule is cut, which follow each other
    like a pipeline; 1, None: the runtime slices. ``order``: of its transfers (None: by priority).
    ``parts``: into which chunks are cut for sums by several thread blocks (None: 1).

    ``passes``: those on programs run in their order; of those on the flow, one given here stands
    for the one that these options describe. ``verify`` is called with the program after every pass,
    ``observe`` with its name as well; a flow shows itself as the plain program that does the same.
    ``tell`` is called with a short text on the next step.
    """

    target: Target = MSCCL
    instances: int | Literal["auto"] | None = None
    replication: Replication = Replication.BATCHED
    pairing: Pairing | None = None
    in_place: bool = False
    protocol: Protocol | None = None
    lanes: int | None = None
    spread: Spread | None = None
    count: int = 0
    segments: int | None = None
    order: Order | None = None
    parts: int | None = None
    name: str = ""
    form: Literal["race", "fixed"] = "race"
    passes: tuple[Pass, ...] = DEFAULT_PASSES
    verify: Callable[[Program], None] | None = field(default=None, compare=False)
    observe: Callable[[str, Program], None] | None = field(default=None, compare=False)
    tell: Callable[[str], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        # A user may write the two that have names as texts.
        object.__setattr__(self, "target", target_of(self.target))
        for name in ("instances", "lanes", "count"):
            if (value := getattr(self, name)) not in (None, AUTO):
                object.__setattr__(self, name, integer(value, name))
        if self.protocol is not None:
            object.__setattr__(self, "protocol", protocol_of(self.protocol))

    def journal(self) -> Journal:
        """Return a new journal for these options."""
        return Journal(self.target, self.verify, self.observe, self.tell)


def lower_schedule(schedule: Schedule, options: CompileOptions | None = None) -> Program:
    """Return the program of a schedule for a target.

    Raises:
        UserError: something the target, or the form, cannot express, in words.
        CheckFailed: the schedule is wrong (a rank sends a chunk that it does not hold).
    """
    refuse_casts(schedule, "a program cannot express what switches sum or copy")
    o = _settled(options or CompileOptions(), 1, Protocol.SIMPLE)
    c = schedule.collective
    o = replace(o, name=o.name or label([schedule.topology.name, str(c.kind)], c, o))
    journal = o.journal()
    assert o.order is not None
    assert o.parts is not None
    assert o.segments is not None
    usual = Lower(order=o.order, parts=o.parts)
    named = next((one for one in o.passes if isinstance(one, Lower)), usual)
    lower = replace(named, in_place=o.in_place)
    flow = journal.run(lower, _unrolled(schedule, o.segments))
    return compile_flow(flow, o, journal)


@kept(most=8)
def _unrolled(schedule: Schedule, segments: int) -> Schedule:
    return unrolled(schedule, segments)


def lower_algorithm(
    algorithm: Algorithm, options: CompileOptions | None = None, journal: Journal | None = None
) -> Program:
    """Return the program of an algorithm for a target; a journal that has been begun goes on.

    Raises:
        UserError: something the target, or the form, cannot express, in words.
    """
    o = _settled(options or CompileOptions(), algorithm.instances, algorithm.protocol)
    if o.in_place and not algorithm.in_place:
        raise UserError(
            f"the algorithm {algorithm.name} is written out of place",
            hint="compile it without in_place, or write it with in_place=True",
        )
    o = replace(o, name=o.name or label(algorithm.name.split("_"), algorithm.collective, o))
    journal = journal or o.journal()
    algorithm = replace(algorithm, moves=canonical(algorithm))
    for one in of_form(o.passes, "algorithm", "algorithm"):
        algorithm = journal.run(one, algorithm)
    return compile_flow(journal.run(Trace(), algorithm), o, journal)


def lower_program(program: Program, options: CompileOptions | None = None) -> Program:
    """Return a program from elsewhere, compiled anew: lifted to its moves, then as an algorithm.

    The program must be free of races; it keeps its placement, its name as provenance, and, unless
    the options differ, the channels of a connection: one channel may not fill a machine's link,
    and the program's author may have known.

    Raises:
        UserError: something the target cannot express, in words.
        CheckFailed: the program deadlocks, or two ends of a connection do not match.
    """
    o = options or CompileOptions()
    if not o.name and (o.instances or 1) == 1:
        o = replace(o, name=program.name)
    if not o.lanes:
        o = replace(o, lanes=_lanes(program))
    journal = o.journal()
    return lower_algorithm(journal.run(Lift(), program), o, journal)


def _lanes(program: Program) -> int:
    """Return the most channels between two ranks; 0, as fusion needs, where there is one."""
    used: dict[tuple[int, int], set[int]] = {}
    heads = (program.block_rank, program.block_send, program.block_channel)
    for rank, peer, channel in zip(*(column.tolist() for column in heads), strict=True):
        if peer != ABSENT:
            used.setdefault((rank, peer), set()).add(channel)
    most = max(map(len, used.values()), default=1)
    return most if most > 1 else 0


def compile_flow(flow: Flow, o: CompileOptions, journal: Journal) -> Program:
    """Return the program of a flow; all options are settled.

    Raises:
        UserError: something the target cannot express, in words.
        CheckFailed: a pass made something wrong of it.
    """
    target, stages = o.target, _PassOrder.of(o)
    for before in stages.before:
        flow = journal.run(before, flow)
    # The steps of one block are known at the end only; a connection that needs more gets lanes.
    per_lane, pair_all = target.max_steps, False
    for _ in range(ATTEMPTS):
        attempt, placed = journal.branch(), flow
        for one in stages.places(per_lane, pair_all):
            placed = attempt.run(one, placed)
        # Every message stays one instruction of its sender: too many need no writing out.
        steps, blocks = _most_messages(placed), 0
        if steps <= target.max_steps or per_lane == 1:
            program: Program = attempt.run(stages.weave, placed)
            for last in stages.after:
                program = attempt.run(last, program)
            steps, blocks = sizes(program)
        if steps > target.max_steps and per_lane > 1:
            per_lane = max(1, per_lane * target.max_steps // (steps + target.max_steps // 8))
        elif blocks > target.max_blocks and not pair_all:
            pair_all = True
        else:
            break
    attempt.close(stages.weave.protocol)
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
    return program


@dataclass(frozen=True, slots=True)
class _PassOrder:
    """The passes from the flow on: those that the options name, else those that they imply."""

    before: list[Pass]
    channels: Channels
    threadblocks: ThreadBlocks
    aggregate: Aggregate
    weave: Weave
    after: list[Pass]

    @staticmethod
    def of(o: CompileOptions) -> _PassOrder:
        assert isinstance(o.instances, int)
        assert o.protocol is not None
        assert o.pairing is not None
        assert o.spread is not None
        named: dict[type[Any], Any] = {type(one): one for one in o.passes}

        def chosen(usual: _P) -> _P:
            return cast(_P, named.get(type(usual), usual))

        protocol, count = o.protocol, chosen(Aggregate(count=o.count)).count
        ours = (Instances, Channels, ThreadBlocks, Aggregate)
        others = [x for x in of_form(o.passes, "flow", "flow") if not isinstance(x, ours)]
        return _PassOrder(
            [chosen(Instances(o.instances, o.replication)), *others],
            replace(
                chosen(Channels(o.lanes or 0, policy=o.spread)), protocol=protocol, count=count
            ),
            replace(chosen(ThreadBlocks(policy=o.pairing)), protocol=protocol, count=count),
            replace(chosen(Aggregate(count=o.count)), protocol=protocol),
            Weave(o.name, protocol),
            of_form(o.passes, "program", "program"),
        )

    def places(self, per_lane: int, pair_all: bool) -> list[Pass]:
        """Return passes that assign channels, of at most ``per_lane`` messages each, and blocks."""
        channels = replace(self.channels, steps=min(self.channels.steps or per_lane, per_lane))
        pair_all = pair_all or self.threadblocks.pair_all
        return [channels, replace(self.threadblocks, pair_all=pair_all), self.aggregate]


_P = TypeVar("_P")


def _settled(o: CompileOptions, instances: int, protocol: Protocol) -> CompileOptions:
    """Return the options, completed from the input where the user left them out."""
    if o.instances == AUTO:
        raise UserError("instances='auto' is not chosen here", hint="name a number")
    usual: dict[str, Any] = {**SETTLED, "instances": instances, "protocol": protocol}
    return replace(o, **{k: x for k, x in usual.items() if getattr(o, k) is None})


def _most_messages(flow: Flow) -> int:
    assert flow.blocks is not None
    return int(np.bincount(flow.blocks.connection).max(initial=0))


def sizes(program: Program) -> tuple[int, int]:
    """The most steps of a block (nops for further dependences included), and blocks of a rank."""
    waits = np.diff(program.wait_start)
    steps = offsets(np.maximum(waits, 1))[program.block_start]
    blocks = np.diff(program.first_block)
    return int(np.diff(steps).max(initial=0)), int(blocks.max())


def label(words: list[str], collective: Collective, options: CompileOptions) -> str:
    """Return the name in the file, with the roots, which the format cannot hold elsewhere."""
    if collective.kind in ROOTED:
        words.append(f"root{collective.roots[0]}")
    elif collective.kind in MULTIROOT:
        words.append("roots" + "-".join(map(str, collective.roots)))
    if isinstance(options.instances, int) and options.instances > 1:
        words.append(f"x{options.instances}")
    return "_".join("".join(c if c.isalnum() else "-" for c in w) for w in words)[:63]
