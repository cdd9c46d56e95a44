"""Choice of tune: schedules in which switches sum and copy take part, or a remark says why not.

Only MSCCL++ plans express them, and only GPUs from sm_90 on execute them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from weft.dsl.base.errors import UserError
from weft.dsl.base.registry import BACKENDS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.library import IN_SWITCHES
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds.switch_gain import switch_gain

from ..formats.mscclpp.casts.fit import DTYPES, LEAST_SM, Hardware, refuse_hardware
from ..formats.mscclpp.lower.emit import ALIGNMENT
from .options import TuneOptions

FORMAT = "mscclpp-json"
"""The format whose plans say what switches do."""

KINDS = (Kind.ALLREDUCE, Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.BROADCAST, Kind.REDUCE)
"""Collectives in which sums or copies of switches serve."""


def why_not(topology: Topology, options: TuneOptions) -> str | None:
    """Return why no plan of a library lets switches sum or copy, and what would; None: some may."""
    others = [name for name in options.wanted.formats if name != FORMAT]
    if options.measuring is not None:
        return (
            "ranks that are measured exchange messages; without --measure and with --to " + FORMAT
        )
    if others:
        say = getattr(BACKENDS.make(others[0]), "no_casts", "")
        reason = f" ({say})" if say else ""
        return f"{others[0]} has no word for it{reason}; --to {FORMAT} alone takes it"
    if "Simple" not in options.raced_protocols:
        return "packets cannot be summed; --protocols Simple takes it"
    try:
        refuse_hardware(Hardware(family=topology.timing.family), topology.name)
    except UserError as error:
        return error.message
    return None


def left_out(topology: Topology, collective: Collective, why: str) -> str | None:
    """Return one line on what the plans of a library leave unused; None: nothing."""
    gain = switch_gain(topology, collective)
    if gain is None or collective.kind not in KINDS:
        return None
    ratio = f"{float(gain.without / gain.with_them):.4g}"
    brings = f", which gives {ratio} times the bandwidth" if gain.helps else ""
    return f"plans do not let {gain.switches[0]} sum or copy{brings}: {why}"


def asked_of(topology: Topology, collective: Collective, options: TuneOptions) -> bool:
    """Return True if schedules with casts take part in a race."""
    able = any(node.computes for node in topology.nodes)
    return able and collective.kind in KINDS and why_not(topology, options) is None


def limits_told(plans: Mapping[str, tuple[Schedule, int]]) -> Iterator[str]:
    """Yield what plans with casts ask for; ``plans``: schedule and lanes by name."""
    some = {name: one for name, one in plans.items() if len(one[0].casts)}
    if not some:
        return
    chunks = {s.collective.in_grains().message_chunks * lanes for s, lanes in some.values()}
    multiples = " and ".join(str(ALIGNMENT * n) for n in sorted(chunks))
    groups = {len({*one.sources, *one.destinations}) for s, _ in some.values() for one in s.casts}
    yield (
        f"{', '.join(some)}: {IN_SWITCHES}, on sm_{LEAST_SM} or later only; "
        f"{', '.join(DTYPES)}; messages of a multiple of {multiples} bytes, in buffers that can be "
        f"multicast, at one offset on all {_listed(sorted(groups))} GPUs of a group"
    )


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))
