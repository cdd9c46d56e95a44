"""Inputs from arguments: topologies, collectives, groups, sketches, sizes, whole problems."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import parse_json, read_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spec import python_text
from weft.dsl.machines.failures import degraded, find, nic_down, rank_down, require_whole
from weft.dsl.machines.names import names_of
from weft.dsl.nouns.collective import MULTIROOT, ROOTED, Collective, Kind, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.reshard import is_reshard, part_of_tensor, reshard_collective

from ..flags.shared import RELAYS, DownFlags, MaybeProblemFlags, Ranks, RelayFlags
from .machines import read_topology

if TYPE_CHECKING:
    from weft.dsl.machines.failures import Degraded, Down
    from weft.dsl.nouns.sketch import Sketch
    from weft.dsl.nouns.topology import Topology

    from ..flags.search import SynthFlags


@dataclass(frozen=True, slots=True)
class NamedCollective:
    """A collective by name or file, with the roots that were given."""

    collective: str
    root: tuple[int, ...] | None = None
    roots: tuple[int, ...] | None = None


def named_down(args: DownFlags, topology: Topology) -> tuple[Down, ...]:
    """Return the failures that ``--down`` and its like name on a machine; empty without any.

    Raises:
        UserError: the machine lacks the part.
    """
    return (
        *(find(topology, text, f"--down {text[:60]}") for text in args.down),
        *(nic_down(topology, text, f"--down-nic {text[:60]}") for text in args.down_nic),
        *(
            rank_down(topology, rank, f"--down-rank {rank}")
            for rank in rank_numbers(topology, args.down_rank, "--down-rank")
        ),
    )


def rank_numbers(topology: Topology, ranks: Ranks, flag: str) -> tuple[int, ...]:
    """Return the numbers of ranks, of which some are names of GPUs.

    Raises:
        UserError: the machine lacks the GPU, or has several.
    """
    if not any(isinstance(rank, str) for rank in ranks):
        return tuple(int(rank) for rank in ranks)
    names = names_of(topology)
    return tuple(names.rank(r, f"{flag} {r}") if isinstance(r, str) else r for r in ranks)


def restricted(topology: Topology, group: Ranks | None) -> Topology:
    """Return the machine of the process group that ``--group`` names; without one, all of it.

    Raises:
        UserError: the machine lacks the GPU.
    """
    if not group:
        return topology
    return topology.restricted_to(rank_numbers(topology, group, "--group"))


def read_problem(
    args: MaybeProblemFlags,
    sketch: str | None = None,
    require: Callable[[str, int], None] | None = None,
) -> tuple[Topology, Collective]:
    """Return the topology restricted to the process group, and the collective on it.

    A TACCL ``sketch`` and its topology define the machine together. ``require`` may refuse a
    collective's name and number of ranks before the collective is made. What is down is taken
    away; a rank that is, leaves the group. Ranks in the arguments are those of the whole machine.

    Raises:
        BadTopology: a group that is not there, or that the failures have disconnected.
    """
    assert args.topology is not None
    assert args.collective is not None
    machine = _machine(args.topology, sketch)
    group = rank_numbers(machine, args.group or tuple(range(machine.ranks)), "--group")
    downs = named_down(args, machine) if isinstance(args, DownFlags) else ()
    left = degraded(machine, downs) if downs else None
    if left is not None:
        topology, group = _left_of(left, group)
    else:
        topology = machine.restricted_to(group) if args.group else machine
    if require is not None:
        require(args.collective, len(group))
    root = None if args.root is None else rank_numbers(machine, args.root, "--root")
    roots = None if args.roots is None else rank_numbers(machine, args.roots, "--roots")
    collective = collective_for(NamedCollective(args.collective, root, roots), group)
    if isinstance(args, RelayFlags) and args.relays != RELAYS[0]:
        return _with_relays(args, machine, left, group, collective)
    if left is not None and topology is left.topology:
        require_whole(left, collective)
    return topology, collective


def _with_relays(
    args: MaybeProblemFlags,
    machine: Topology,
    left: Degraded | None,
    group: tuple[int, ...],
    collective: Collective,
) -> tuple[Topology, Collective]:
    if not args.group:
        raise UserError(
            "--relays needs --group: without a group all ranks take part",
            hint="--group 0,1,2,3 names the ranks of the collective",
        )
    if left is None:
        return machine, collective.within(group, machine.ranks)
    place = {old: new for new, old in enumerate(left.survivors)}
    ranks = tuple(place[rank] for rank in group)
    return left.topology, collective.within(ranks, left.topology.ranks)


def _machine(named: str, sketch: str | None) -> Topology:
    """Return the machine that ``-t`` names, or that it and a TACCL sketch describe together."""
    if sketch is None:
        return read_topology(named)
    from .foreign import machine_with, sketch_in  # readers of TACCL's and TE-CCL's inputs

    both = sketch_in(sketch)
    return machine_with(named, both) if both else read_topology(named)


def _left_of(left: Degraded, group: tuple[int, ...]) -> tuple[Topology, tuple[int, ...]]:
    if group == tuple(range(left.whole.ranks)):
        return left.topology, left.survivors
    place = {old: new for new, old in enumerate(left.survivors)}
    left.whole.restricted_to(group)  # the group must be valid before it is reduced
    kept = tuple(rank for rank in group if rank in place)
    return left.topology.restricted_to(place[rank] for rank in kept), kept


def collective_for(args: NamedCollective, group: tuple[int, ...]) -> Collective:
    """Return the collective of ``-c``; roots are topology ranks, converted to ranks in the group.

    Raises:
        UserError: a root outside the group, or a collective for another number of ranks.
    """
    if args.root is not None and args.roots is not None:
        raise UserError("--root and --roots exclude each other")
    named = args.roots if args.roots is not None else args.root or ()
    if is_reshard(args.collective):
        if named:
            raise UserError("a resharding has no root", where=args.collective)
        return reshard_collective(args.collective, group)
    if is_file(args.collective):
        if named:
            raise UserError("a collective from a file has its own roots", where=args.collective)
        collective = collective_from(args.collective, len(group))
        if collective.ranks != len(group):
            raise UserError(
                f"the collective is for {collective.ranks} ranks, the group has {len(group)}",
                where=args.collective,
                hint="--group picks the ranks",
            )
        return collective
    for root in named:
        if root not in group:
            shown = ", ".join(map(str, group[:32])) + (", …" if len(group) > 32 else "")
            raise UserError(f"root {root} is outside the group", hint=f"its ranks are {shown}")
    return make(canonical(args.collective), len(group), roots=[group.index(r) for r in named])


def message_note(text: str, collective: Collective) -> str:
    """Return a note on M of a resharding whose M is not the whole tensor, else an empty text."""
    if not is_reshard(text) or (part := part_of_tensor(collective)) == 1:
        return ""
    return f"M, the largest buffer of a rank, is {part} of the tensor: --size is of that"


def canonical(name: str) -> str:
    """Return the canonical name: ``all-gather``, ``All_Gather`` and ``allgather`` are one name."""
    plain = {k.replace("_", ""): str(k) for k in Kind}
    return plain.get(name.lower().replace("-", "").replace("_", ""), name)


def takes_root(text: str) -> bool:
    """Return True if the text of ``-c`` names a collective that has roots."""
    return not is_file(text) and canonical(text) in {str(kind) for kind in ROOTED | MULTIROOT}


def is_file(text: str) -> bool:
    """Return True if the text of ``-c`` names a file instead of a collective."""
    if is_reshard(text):
        return False
    return text == "-" or "/" in text or text.endswith(".json") or python_text(text) is not None


def collective_from(path: str, ranks: int | None = None) -> Collective:
    """Return the collective in a JSON file, or of a Python file or its algorithm.

    An input of TE-CCL names one for as many ``ranks`` as the machine has.

    Raises:
        BadFile, SyntaxProblem, UserError: it holds none, or none that makes sense.
    """
    if python_text(path):
        from weft.dsl.author.recipe import load_collective  # only a user's Python file needs it

        return load_collective(path)
    from weft.dsl.importers.teccl import looks_like_teccl, read_teccl_input  # only files need it

    where = "<stdin>" if path == "-" else path
    data = parse_json(read_text(path), where)
    if ranks is not None and looks_like_teccl(data):
        return read_teccl_input(data, where).collective(ranks)
    return Collective.from_json(data, where)


def make_problem(
    args: SynthFlags, topology: Topology, collective: Collective, sketch: Sketch | None
) -> Problem:
    """Return the problem as ``synth`` poses it.

    Raises:
        UserError: the objective ``time`` without one size.
    """
    objective = Objective(args.objective)
    size = args.size
    if objective is Objective.TIME and (size is None or size.low != size.high):
        raise UserError("the objective time needs one message size", hint="--size 1MiB")
    cost = args.message_cost
    if cost is None and args.require_optimal:
        cost = Fraction(0)  # the bound is of times without it
    at = size.low if size else None
    return Problem(topology, collective, sketch, objective, at, message_us=cost)
