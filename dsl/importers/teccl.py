"""Importer of TE-CCL's input JSON: a named machine, a collective, chunks, solver options.

The machines are those that TE-CCL builds, with its errors corrected and noted. With
``as_shipped=on`` the errors are kept, for comparison with published results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ..base.errors import BadFile, UnknownName, UserError
from ..base.files import Fields
from ..base.lazy_dataclass import Frozen
from ..base.units import LARGEST_MESSAGE, exact, format_bytes
from ..machines.families import mesh
from ..machines.host_file import load_host
from ..machines.hosts import Cables, Host, HostSwitch, connect, side_by_side, with_symmetries
from ..machines.spec import MAX_GPUS, MachineSpec, check_size, parse_spec
from ..nouns.collective import Collective, make
from ..nouns.topology import Link, Node, NodeKind, Topology, both_ways, switch
from ..symmetry.symmetry import guess

NAMES = ("DGX1", "DGX2", "NDv2", "AMD", "Mesh")
KINDS = {1: "allgather", 2: "alltoall"}
Number = (int, float)

_INFINIBAND = Fraction(25, 2), Fraction(13, 10)
"""GB/s and µs of one hop of NDv2's network."""

_INSTANCE = """
    num_chunks epoch_type epoch_duration epoch_multiplier num_epochs alpha_threshold
    alpha_epoch_duration_ratio_max switch_copy switch_to_gpu_link_on debug debug_output_file
    objective_type solution_method schedule_output_file warmstart symmetry lower lower_xml epsilon
    collective
""".split()


class TecclInput(Frozen):
    """Contents of the file. ``alphas`` in µs: of links, and of links to switches.

    ``chunk`` is the size of a chunk in bytes, ``chunks`` the chunks per GPU (alltoall: per pair).
    """

    name: str
    where: str
    chassis: int
    side: int
    alphas: tuple[Fraction, Fraction]
    kind: str
    chunk: int
    chunks: int
    multicast: bool
    notes: tuple[str, ...]

    def collective(self, ranks: int) -> Collective:
        """Return the uncut collective on the machine's ranks."""
        return make(self.kind, ranks)

    def message(self, ranks: int) -> int:
        """Return the message size M in bytes: the larger buffer of a rank."""
        return ranks * self.chunks * self.chunk


def looks_like_teccl(data: Any) -> bool:
    """Return True if parsed JSON is an input of TE-CCL, possibly with errors."""
    return isinstance(data, dict) and bool({"TopologyParams", "InstanceParams"} & data.keys())


def read_teccl_input(data: Any, where: str) -> TecclInput:
    """Parse the input.

    Raises:
        BadFile: a key missing, unknown, or of the wrong type. UnknownName: no such machine.
    """
    whole = Fields(data, where)
    place = f"{where}: TopologyParams"
    shape = Fields(whole.get("TopologyParams", dict), place)
    asked = whole.get("InstanceParams", dict, {})
    instance = Fields(asked, f"{where}: InstanceParams")
    whole.get("GurobiParams", dict, {})
    whole.finish(ignore=())
    name = shape.get("name", str)
    if name not in NAMES:
        raise UnknownName("machine of TE-CCL", name, NAMES, where=place)
    found = TecclInput(
        name,
        where,
        _count(shape, "chassis", 2 if name == "DGX2" else 1, place),
        _count(shape, "side_length", 4, place),
        _alphas(shape, place),
        _kind(instance, f"{where}: InstanceParams"),
        _chunk(shape, place),
        _count(instance, "num_chunks", 1, f"{where}: InstanceParams"),
        instance.get("switch_copy", bool, True),
        (),
    )
    shape.finish(ignore=())
    idle = [key for key in asked if key not in _INSTANCE]
    notes = tuple(
        f"InstanceParams: TE-CCL takes {key!r} silently and does not use it" for key in idle
    )
    return replace(found, notes=notes)


def _count(fields: Fields, key: str, default: int, place: str) -> int:
    value = fields.get(key, int, default)
    if not 1 <= value <= 1 << 16:
        raise BadFile(f"{key} is {value}", where=place, hint="1 or more")
    return int(value)


def _alphas(shape: Fields, place: str) -> tuple[Fraction, Fraction]:
    values = shape.get("alpha", list, [0, 0])
    if len(values) != 2:
        raise BadFile("alpha has two numbers, of links and of links to switches", where=place)
    first, second = (exact(v, f"{place}: alpha") * 10**6 for v in values)
    if min(first, second) < 0:
        raise BadFile("alpha is negative", where=place)
    return first, second


def _chunk(shape: Fields, place: str) -> int:
    size = exact(shape.get("chunk_size", Number, 1), f"{place}: chunk_size") * 10**9
    if not 1 <= size < LARGEST_MESSAGE:
        raise BadFile(
            f"a chunk of {float(size):g} bytes",
            where=place,
            hint="chunk_size is in GB: 1e-6 is a kilobyte",
        )
    return round(size)


def _kind(instance: Fields, place: str) -> str:
    number = instance.get("collective", int, 1)
    if number not in KINDS:
        raise BadFile(f"collective is {number}", where=place, hint="1 is allgather, 2 alltoall")
    return KINDS[number]


# ---- the machine


def read_teccl(data: Any, where: str, options: MachineSpec) -> Topology:
    """Return the machine of an input; ``as_shipped=on`` keeps TE-CCL's errors.

    Raises:
        BadFile: as :func:`read_teccl_input`. UserError: errors that cannot be kept.
    """
    asked = read_teccl_input(data, where)
    shipped = options.choice("as_shipped", "off", ("on", "off")) == "on"
    build = {"DGX1": _dgx1, "DGX2": _dgx2, "NDv2": _ndv2, "AMD": _amd, "Mesh": _mesh}[asked.name]
    made = build(asked, options, shipped)
    kind = f"{asked.kind}, {asked.chunks} of {format_bytes(asked.chunk)}"
    each = "from each GPU" + (" to each other" if asked.kind == "alltoall" else "")
    told = f"asks for {kind} {each}: --size {format_bytes(asked.message(made.ranks))}"
    return replace(made, name=asked.name, notes=(*asked.notes, *made.notes, told))


def _noted(made: Topology, *notes: str) -> Topology:
    return replace(made, notes=(*made.notes, *notes))


def _dgx1(asked: TecclInput, options: MachineSpec, shipped: bool) -> Topology:
    _one_chassis(asked)
    host = load_host("dgx1")
    host = replace(host, cables=(replace(host.cables[0], alpha=asked.alphas[0]),))
    return with_symmetries(side_by_side(host, options, 1), host, 1)


def _dgx2(asked: TecclInput, options: MachineSpec, shipped: bool) -> Topology:
    """Return two DGX-2, each pair's odd GPU linked to the even one of the other host."""
    port = HostSwitch("nvswitch", tuple(range(16)), Fraction(125), Fraction(35, 100))
    host = Host("DGX2", "DGX2", 16, (port,), (), None, load_host("dgx2").moves)
    inner = side_by_side(host, options, 2)
    nodes = (replace(n, multicast=asked.multicast and not n.stores) for n in inner.nodes)
    inner = replace(inner, nodes=tuple(nodes))
    pairs = tuple((2 * p + 1, 2 * p) for p in range(8))
    made = _own_alphas(
        connect(inner, host, options, pairs, (Fraction(25, 2), Fraction(26, 10))), asked
    )
    if asked.chassis != 2:
        return _noted(made, f"TE-CCL builds two DGX2, whatever chassis says ({asked.chassis})")
    return made


def _ndv2(asked: TecclInput, options: MachineSpec, shipped: bool) -> Topology:
    """Return NDv2 hosts: two linked directly, more over a switch, GPU 0 to GPU 1 of others."""
    host = replace(load_host("ndv2"), nics=None)
    check_size(options, 8 * asked.chassis)
    inner = side_by_side(host, options, asked.chassis)
    if asked.chassis == 1:
        return _own_alphas(with_symmetries(inner, host, 1), asked)
    if asked.chassis > 2:
        fabric = switch("infiniband", multicast=asked.multicast)
        place, width = len(inner.nodes), _INFINIBAND
        firsts = range(0, inner.ranks, 8)
        up = [Link(r, place, *width) for r in firsts]
        down = [Link(place, r + 1, *width) for r in firsts]
        links = (*inner.links, *up, *down)
        made = Topology(inner.name, (*inner.nodes, fabric), links)
        return _own_alphas(with_symmetries(made, host, asked.chassis), asked)
    made = _own_alphas(connect(inner, host, options, ((0, 1),), _INFINIBAND), asked)
    slip = "TE-CCL takes GPU 0 of two NDv2 for a switch, so its results are of 15 GPUs"
    if not shipped:
        return _noted(made, f"{slip}; here it is a GPU")
    return _noted(_as_switch(made, asked.multicast), f"{slip}, and so is this")


def _as_switch(made: Topology, multicast: bool) -> Topology:
    """Return the machine with GPU 0 turned into a switch and the other ranks lowered by one."""
    last = made.ranks - 1
    place = {0: last} | {r: r - 1 for r in range(1, made.ranks)}
    gpus = [replace(n, name=f"gpu{r}") for r, n in enumerate(made.nodes[1 : made.ranks])]
    first = Node("switch-gpu0", NodeKind.SWITCH, made.nodes[0].host, multicast)
    links = tuple(
        replace(x, src=place.get(x.src, x.src), dst=place.get(x.dst, x.dst)) for x in made.links
    )
    nodes = (*gpus, first, *made.nodes[made.ranks :])
    return Topology(made.name, nodes, links, made.resources, notes=made.notes)


def _amd(asked: TecclInput, options: MachineSpec, shipped: bool) -> Topology:
    """Return hosts of sixteen GCDs; several have a switch per two GCDs below one main switch."""
    model = load_host("mi250")
    host = replace(model, cables=(Cables(model.cables[0].pairs, Fraction(50), asked.alphas[0]),))
    check_size(options, 16 * asked.chassis)
    inner = side_by_side(host, options, asked.chassis)
    if asked.chassis == 1:
        return with_symmetries(inner, host, 1)
    if shipped:
        raise UserError(
            "what TE-CCL makes of two AMD chassis is not kept: GCD 15 is a switch there, and one "
            "switch a GPU without a network",
            where=options.keys["as_shipped"],
            hint="leave as_shipped out",
        )
    small = [(h, s) for h in range(asked.chassis) for s in range(8)]
    first = len(inner.nodes)
    main = first + len(small)
    links: Sequence[Link] = inner.links
    for i, (h, s) in enumerate(small, first):
        for end in (16 * h + 2 * s, 16 * h + 2 * s + 1, main):
            links = (*links, *both_ways(end, i, 25, asked.alphas[1]))
    names = (Node(f"leaf{h}.{s}", NodeKind.SWITCH, h, asked.multicast) for h, s in small)
    nodes = (*inner.nodes, *names, switch("main", multicast=asked.multicast))
    made = with_symmetries(Topology(inner.name, nodes, tuple(links)), host, asked.chassis)
    return _noted(
        made,
        "TE-CCL's list of the switches of several AMD chassis is off by one, and the links "
        "of the first small switch are twice as fast; here all have 25 GB/s",
    )


def _mesh(asked: TecclInput, options: MachineSpec, shipped: bool) -> Topology:
    _one_chassis(asked)
    side = asked.side
    check_size(options, side * side)
    made = mesh(parse_spec(f"mesh:{side}x{side},bw=100GB/s"))
    made = replace(made, links=tuple(replace(x, latency=asked.alphas[0]) for x in made.links))
    slip = "TE-CCL links the last GPU of a row of the mesh with the first of the next"
    if not shipped:
        return _noted(made, f"{slip}; here it does not")
    wraps = [
        x
        for row in range(1, side)
        for x in both_ways(row * side - 1, row * side, 100, asked.alphas[0])
    ]
    made = replace(made, links=(*made.links, *wraps), symmetries=())
    return _noted(replace(made, symmetries=guess(made, MAX_GPUS)), f"{slip}, and so does this")


def _one_chassis(asked: TecclInput) -> None:
    if asked.chassis != 1:
        raise BadFile(
            f"TE-CCL has one {asked.name} only, but chassis is {asked.chassis}",
            where=f"{asked.where}: TopologyParams",
        )


def _own_alphas(made: Topology, asked: TecclInput) -> Topology:
    if any(asked.alphas):
        return _noted(made, f"alpha is not used: TE-CCL has its own for {asked.name}")
    return made
