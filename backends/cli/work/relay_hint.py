"""Gain by GPUs outside a process group that forward, from bounds with and without them."""

from __future__ import annotations

from dataclasses import replace

from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.parts import NodeKind
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds, bounds

from ..flags.shared import RELAYS, DownFlags, MaybeProblemFlags, RelayFlags
from ..flags.values import LIMITS
from ..inputs.inputs import rank_numbers
from ..inputs.machines import read_topology


def relay_hint(args: MaybeProblemFlags, collective: Collective, own: Bounds) -> str:
    """Return the possible gain at large sizes if GPUs outside of ``--group`` forwarded; empty if
    nothing, without a group, and of large machines.

    ``own``: the bounds of the group alone. Those with the others count them as switches, which
    neither store nor copy: what they gain at least is what a schedule could have.
    """
    if isinstance(args, RelayFlags) and args.relays != RELAYS[0]:
        return ""
    if not args.group or args.topology in (None, "-") or own.seconds_per_byte == 0:
        return ""
    if isinstance(args, DownFlags) and (args.down or args.down_nic or args.down_rank):
        return ""
    assert args.topology is not None
    machine = read_topology(args.topology)
    group = rank_numbers(machine, args.group, "--group")
    if len(group) == machine.ranks or machine.ranks > LIMITS.relay_ranks:
        return ""
    factor = own.seconds_per_byte / bounds(forwarding(machine, group), collective).seconds_per_byte
    if factor < LIMITS.relay_gain:
        return ""
    gain = f"{float(factor):.1f} x at large sizes (bounds)"
    return f"GPUs outside the group could forward: {gain}; --relays all"


def forwarding(machine: Topology, group: tuple[int, ...]) -> Topology:
    """Return the machine of a process group in which the other GPUs are switches."""
    others = [rank for rank in range(machine.ranks) if rank not in set(group)]
    kept = (*group, *others, *range(machine.ranks, len(machine.nodes)))
    whole = machine.on_nodes(kept, f"{machine.name} around {len(group)} ranks")
    nodes = tuple(
        replace(node, kind=NodeKind.SWITCH) if len(group) <= i < machine.ranks else node
        for i, node in enumerate(whole.nodes)
    )
    return replace(whole, nodes=nodes)
