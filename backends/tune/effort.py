"""Search parameters of tuning: thresholds, limits, and how much each round tries.

A ratio is of a time to the best known at a size, unless stated otherwise.
"""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TuneEffort:
    """Search parameters of tuning."""

    # --- questions to the engines
    asked_octaves: int = 4  # doublings between two sizes of requests
    # Ranks up to which the frontier in steps and rounds is requested: each point may be best as a
    # program, which has latencies that a schedule does not model.
    exact_ranks: int = 8
    # Successive parts in a program (iterations of the loop, instances, segments): an order that is
    # good for the hundred slices of a schedule is not the best for so few.
    slices: int = 8
    repaired_ratio: float = (
        1.03  # to the bound, at which a repaired old schedule replaces a new one
    )
    near_program: float = 1.05  # to the least time of any program, at which a plan is near it
    reasons: int = 3  # that are listed if no schedule is found
    # To the best schedule without a sketch, at the largest size: to try a sketch at other sizes.
    sketch_ratio: float = 1.05
    # Least, of the best schedule without a sketch to the bound, at the largest size: to try
    # sketches of the shelf. They are for bandwidth and cannot gain more.
    sketch_room: float = 1.02
    # Of the effort for a question about a small message, whose least latency takes longer than its
    # load: for allreduce on DGX-1, two and four A100 hosts and two of MI250 a longer search found
    # the same transfers.
    small_divisor: int = 10
    large_bytes: int = 64 << 20  # from which latencies are small beside the rest

    # --- baselines: messages of their programs
    ring_bytes: int = 256 << 20  # at which the bandwidth of rings is taken, from half of that on
    baseline_messages: int = 300_000  # beyond which a program is not tried
    partial_ring_messages: int = 60_000  # the same for one that has not all of a machine's rings
    tree_messages: int = 35_000  # beyond which a tree is not cut into pieces
    ring_messages: int = 20_000  # beyond which rings on fewer hosts are simulated

    # --- one schedule in many forms
    program_instructions: int = 200_000  # of all ranks: larger programs are not tried
    loop_operations: int = 1_000_000  # over all iterations, for protocols other than Simple
    protocol_ratio: float = 1.3  # to the quickest protocol, to be tried with more instances
    instance_gain: float = 0.99  # of times at some size: below it instances are doubled again
    kept_ratio: float = 1.3  # to the largest promising time, beyond which a simulation is given up
    plan_gain: float = 1.002  # least, of the time to beat to a schedule's bound, to try it
    form_ratio: float = 1.6  # at which a form that is best for others is given up
    # In the forms that are best for others, to be tried in all: on a DGX-1 without one cable, a
    # schedule at 1.21 was a sixth quicker than all others in another order and number of segments.
    wide_ratio: float = 1.25
    explored_operations: int = 500_000  # that are simulated one by one, for each variant
    kept_programs: int = 64  # with their clocks, of a process: a race needs some again
    kept_large_programs: int = 16
    large_instructions: int = 20_000  # above which a program is large
    finalist_operations: int = 2_000_000  # that are simulated one by one, for each size

    # --- rounds of the race
    coarse_per_octave: float = 0.5  # sizes per doubling of the first rounds
    finalist_ratio: float = 1.06  # at some size, to reach the last round
    leading_forms: int = 2  # in which schedules within reach are timed before any others
    short_stride: int = 4  # of the sizes in the first round of a short race
    finalists: int = 3  # of one size
    short_finalists: int = 2  # of one size, in the second round of a short race
    # Of a schedule in its usual forms, to try others: these gained up to a third in experiments.
    reach_ratio: float = 1.5
    leaders: int = 2  # of one size, explored first: what others must beat is known then
    # Of the time per byte to that of the largest size, from which on bytes alone decide: what is
    # good at both ends of such sizes is good between them.
    flat_ratio: float = 1.15
    flat_form_ratio: float = 1.05  # at one end of such sizes, to be timed between

    # --- the grid of finalists, and the choice of plans
    grid_per_octave: int = 1  # sizes per doubling
    fine_per_octave: int = 4  # where the best program changes
    beside_ratio: float = 1.12  # at a size, for a finalist to be timed beside it
    lead_ratio: float = 1.03  # of the leads over the baseline at two sizes, to look between
    # Least gain of twice the instances, which take twice the thread blocks from other work.
    copy_price: float = 1.003
    looks: int = 12  # times that plans are chosen and examined between the sizes of the grid
    safe_lead: float = 1.15  # at both ends of a gap, above which only its middle is examined
    gap_parts: int = 6  # of other gaps
    rival_ratio: float = 1.2  # to the best baseline at one end of a gap, to be timed in it
    # Of time, that a size may lose for a change at a power of two, which people remember and
    # compare with, or for one form of a baseline instead of several.
    edge_share: float = 0.01
    change_parts: int = 4096  # of a size, to which a change is found; smaller ones to the byte
    crossing_parts: int = 6  # between two sizes of the grid, at whose ends two plans are compared

    # --- measurements and files
    contestants: int = 12  # that are run: of least predicted time at some size, and baselines
    measured_bytes: int = 1 << 28  # at most: the data of all ranks may be on one machine
    execution_orders: int = 12  # of an artefact before it is written; the proof covers all
    few_execution_orders: int = 3  # above many ranks
    many_ranks: int = 32
    # Of an artefact whose format interprets them one by one: some seconds of each file, of which a
    # library has dozens; of MSCCL XML, which compiled loops execute (instructions times orders).
    executed_operations: int = 300_000
    compiled_operations: int = 100_000
    executed_ranks: int = 128  # beyond which an artefact is proved only
    listed_candidates: int = 24  # beside the plans and the baselines of a library
    timed_transfers: int = 60_000  # times segments, of a schedule whose own time is recorded


EFFORT = TuneEffort()
