"""Random hosts with whole chunks, and their least time by CP-SAT over optional intervals."""

import random
from fractions import Fraction

from strategies import BANDWIDTHS, LATENCIES

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Collective, custom, make
from weft.dsl.nouns.problem import check_connected
from weft.dsl.nouns.topology import Link, Node, Resource, Topology, gpu, switch
from weft.synth.fabric.hop_table import hop_table_of


def hosts(rng: random.Random, most_ranks: int) -> Topology:
    """Two or three unlike hosts: links or a switch inside, one or two NICs, some shared, some links
    dead."""
    count = rng.choice((2, 2, 2, 3))
    sizes = [rng.randint(2, max(2, most_ranks // count)) for _ in range(count)]
    nodes: list[Node] = [gpu(sum(sizes[:h]) + i, h) for h in range(count) for i in range(sizes[h])]
    links: list[Link] = []
    shared: list[Resource] = []

    def node(one: Node) -> int:
        nodes.append(one)
        return len(nodes) - 1

    def wire(a: int, b: int, bandwidth: Fraction, alpha: Fraction) -> list[int]:
        links.extend(Link(x, y, bandwidth, alpha) for x, y in ((a, b), (b, a)))
        return [len(links) - 2, len(links) - 1]

    fabric = node(switch("fabric"))
    for h, size in enumerate(sizes):
        first = sum(sizes[:h])
        ranks = range(first, first + size)
        inside, alpha = rng.choice(BANDWIDTHS), rng.choice(LATENCIES)
        if rng.random() < 0.5:
            hub = node(switch(f"hub{h}", h))
            for v in ranks:
                wire(v, hub, inside, alpha)
        else:
            for v in ranks:
                for w in range(v + 1, first + size):
                    if w == v + 1 or rng.random() < 0.6:
                        wire(v, w, rng.choice((inside, rng.choice(BANDWIDTHS))), alpha)
        outside, far = rng.choice(BANDWIDTHS[:4]), rng.choice(LATENCIES)
        for n in range(rng.choice((1, 1, 2))):
            nic = node(switch(f"nic{h}.{n}", h))
            wire(nic, fabric, outside, far)
            ports = rng.sample(list(ranks), rng.randint(1, size))
            wires = [i for v in ports for i in wire(v, nic, rng.choice(BANDWIDTHS), Fraction(0))]
            if rng.random() < 0.4:
                shared.append(Resource(f"pcie{h}.{n}", tuple(wires[::2]), rng.choice(BANDWIDTHS)))
    made = Topology("hosts", tuple(nodes), tuple(links), tuple(shared))
    dead = {i for i in range(len(links)) if rng.random() < 0.06}
    return made.without_links(dead) if dead else made


def question(rng: random.Random, ranks: int) -> tuple[Collective, int]:
    """A collective (to all, to some, to one rank each, or sums of these), and pieces per unit."""
    kind = rng.choice(("allgather", "allgather", "broadcast", "alltoall", "some", "reduce_scatter"))
    if kind == "some":
        pre = [(r, r, [r], r) for r in range(ranks)]
        wants = {r: rng.sample(range(ranks), rng.randint(1, ranks)) for r in range(ranks)}
        post = [(v, r, [r], r) for r in range(ranks) for v in wants[r]]
        return custom("some", ranks, pre, post), 1
    made = make(kind, ranks, roots=[rng.randrange(ranks)] if kind == "broadcast" else [])
    pieces = {"broadcast": 4, "alltoall": 1}.get(kind, 2)
    return made, rng.randint(1, pieces)


def connected(rng: random.Random, most_ranks: int) -> tuple[Topology, Collective, int]:
    """A machine and a collective that it can serve, and pieces per unit."""
    while True:
        machine = hosts(rng, most_ranks)
        collective, pieces = question(rng, machine.ranks)
        try:
            check_connected(machine, collective)
        except UserError:
            continue
        return machine, collective, pieces


def least_us(machine: Topology, collective: Collective, grain: Fraction, limit: float) -> Fraction:
    """The least time in µs of any schedule of these chunks, copied, that CP-SAT finds within
    ``limit`` deterministic seconds, often proved."""
    from ortools.sat.python import cp_model

    table = hop_table_of(machine, grain)
    model = cp_model.CpModel()
    held = set(zip(collective.pre.ranks.tolist(), collective.pre.chunks.tolist(), strict=True))
    wanted = set(zip(collective.post.ranks.tolist(), collective.post.chunks.tolist(), strict=True))
    horizon = int(table.arrives.max()) * max(1, len(wanted)) * machine.ranks
    end = model.new_int_var(0, horizon, "T")
    busy: dict[int, list[cp_model.IntervalVar]] = {}
    for chunk in range(collective.chunks):
        at = [model.new_int_var(0, horizon, "a") for _ in range(machine.ranks)]
        into: list[list[cp_model.IntVar]] = [[] for _ in range(machine.ranks)]
        taken = []
        for h in range(table.hops):
            src, dst = int(table.src[h]), int(table.dst[h])
            if (dst, chunk) in held:
                continue
            used, start = model.new_bool_var("x"), model.new_int_var(0, horizon, "s")
            into[dst].append(used)
            taken.append((src, used))
            model.add(start >= at[src]).only_enforce_if(used)
            model.add(at[dst] == start + int(table.arrives[h])).only_enforce_if(used)
            for k in range(int(table.first[h]), int(table.first[h + 1])):
                one = model.new_optional_fixed_size_interval_var(
                    start, int(table.hold[k]), used, "i"
                )
                busy.setdefault(int(table.resource[k]), []).append(one)
        for v in range(machine.ranks):
            if (v, chunk) in held:
                model.add(at[v] == 0)
            elif (v, chunk) in wanted:
                model.add_exactly_one(into[v])
                model.add(end >= at[v])
            else:
                model.add_at_most_one(into[v])
        for src, used in taken:
            if (src, chunk) not in held:
                model.add_bool_or(*into[src], used.negated())
    for intervals in busy.values():
        model.add_no_overlap(intervals)
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = limit
    solver.solve(model)
    return Fraction(round(solver.objective_value), table.unit)
