"""The catalogue against edge lists written from data sheets, and the textbook."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from edge_lists import CASES, MACHINES, Edge
from shared import SHARED

from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.catalogue import names, topology, with_capable
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.host_file import host_names, load_host
from weft.dsl.nouns.hops import hop_distances, islands
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.dsl.symmetry.symmetry import generate, is_automorphism, is_semiregular, orbits, verified

NAMES = {
    "cube": "dgx1",
    "a100": "dgx-a100",
    "a100 on planes": "dgx-a100:nodes=2,fabric=planes:2",
    "a100 on rails": "dgx-a100:nodes=4",
    "a100 with few NICs": "dgx-a100:nodes=4,nics=8,8,4,2",
    "h100 on rails": "dgx-h100:nodes=8",
    "dgx2": "dgx2",
    "mi250": "mi250",
    "two mi250": "mi250:nodes=2",
    "mi300x, a cable dead": "mi300x:dead=0-1",
    "mesh": "mesh:5x5,bw=50GiB/s,alpha=0.5us",
    "torus of three": "torus:3x3x3,bw=50GiB/s,alpha=0.5us",
    "torus of two": "torus:8x8,bw=50GB/s",
    "hypercube": "hypercube:6",
    "fat tree": "fat-tree:k=4,oversub=2",
    "dragonfly": "dragonfly:p=2,a=4,h=2",
    "line": "ring:8,bw=50GB/s,dead=7-0",
}

FAMILY_SAMPLES = (
    "ring:2 ring:8 line:5 line:6 star:5 hub:8 full:6 mesh:4x5 mesh:3 torus:4x4 "
    "torus:3x3x3 torus:2x4 twisted:4x8 twisted:2x4 circulant:9,steps=2,3 "
    "circulant:8,steps=1,4 hypercube:3 fat-tree:k=2 fat-tree:k=6 dragonfly:p=1,a=2,h=1 "
    "dragonfly:p=2,a=4,h=2"
).split()


def machine_samples() -> list[str]:
    """Every machine of the catalogue, alone and as three boxes."""
    machines = [e.name for e in names() if "nodes=N" in e.synopsis or ":" not in e.synopsis]
    joined = [f"{e.name}:nodes=3" for e in names() if "nodes=N" in e.synopsis]
    return machines + joined


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_makes_the_graphs_of_the_data_sheets(name: str) -> None:
    made = topology(NAMES[name])
    wanted = MACHINES[name]
    assert made.ranks == len(wanted.gpus)
    assert signature(as_rows(made)) == signature(rows(wanted.gpus, wanted.edges))


@pytest.mark.shared
@pytest.mark.parametrize("case", CASES)
def test_our_edge_lists_are_those_of_the_published_comparisons(case: str) -> None:
    theirs = json.loads((SHARED / "facts" / "grade-cases.json").read_text())[case]
    ours = MACHINES[CASES[case]]
    assert signature(rows(theirs["gpu_ids"], theirs["edges"])) == signature(
        rows(ours.gpus, ours.edges)
    )


Row = tuple[int | None, str, int | None, str, float, float]


def as_rows(made: Topology) -> list[Row]:
    def rank(node: int) -> int | None:
        return node if node < made.ranks else None

    return [
        (rank(x.src), str(x.src), rank(x.dst), str(x.dst), float(x.bandwidth), float(x.latency))
        for x in plain_machine(made).machine.links
    ]


def rows(gpu_ids: Sequence[str], edges: Iterable[Edge]) -> list[Row]:
    gpus = {name: i for i, name in enumerate(gpu_ids)}
    return [(gpus.get(a), a, gpus.get(b), b, w, t) for a, b, w, t in edges]


def signature(rows: list[Row]) -> Counter[tuple[object, ...]]:
    """The links up to the names of switches, which are told apart by what surrounds them."""
    colour: dict[str, object] = {}
    for a_rank, a, b_rank, b, _, _ in rows:
        colour |= {a: a_rank, b: b_rank}
    for _ in range(4):
        near: dict[str, list[object]] = {}
        for _, a, _, b, w, t in rows:
            near.setdefault(a, []).append(("out", round(w, 5), t, repr(colour[b])))
            near.setdefault(b, []).append(("in", round(w, 5), t, repr(colour[a])))
        colour = {
            v: c if isinstance(c, int) else hash(tuple(sorted(map(repr, near[v]))))
            for v, c in colour.items()
        }
    return Counter((colour[a], colour[b], round(w, 5), round(t, 9)) for _, a, _, b, w, t in rows)


@pytest.mark.parametrize("text", [*FAMILY_SAMPLES, *machine_samples()])
def test_every_entry_is_connected_and_its_symmetries_hold(text: str) -> None:
    made = topology(text)
    assert (hop_distances(made) >= 0).all()
    assert verified(made) == made.symmetries
    group = generate(made.symmetries)
    assert group is not None
    if not text.startswith("star"):
        assert is_semiregular(group, made.ranks)


@pytest.mark.parametrize(
    "text",
    (
        "ring:8 hub:8 full:6 torus:4x4x2 hypercube:4 fat-tree:k=4 dgx2 dgx-a100:nodes=4 "
        "dgx2:nodes=2 dgx-a100:nodes=2,fabric=planes:2"
    ).split(),
)
def test_one_rank_stands_for_all_where_the_machine_is_vertex_transitive(text: str) -> None:
    made = topology(text)
    assert set(orbits(made.symmetries, made.ranks).tolist()) == {0}
    group = generate(made.symmetries)
    assert group is not None
    assert len(group) == made.ranks


@pytest.mark.parametrize(
    ("text", "ranks", "links", "diameter"),
    [
        ("ring:2", 2, 2, 1),
        ("ring:9", 9, 18, 4),
        ("line:9", 9, 16, 8),
        ("star:9", 9, 16, 2),
        ("full:7", 7, 42, 1),
        ("hub:7", 7, 14, 1),
        ("mesh:3x4", 12, 34, 5),
        ("torus:4x4", 16, 64, 4),
        ("torus:2x2", 4, 8, 2),
        ("hypercube:4", 16, 64, 4),
        ("fat-tree:k=4", 16, 96, 1),
        ("dragonfly:p=2,a=4,h=2", 72, 324, 1),
    ],
)
def test_families_have_the_size_and_diameter_of_the_textbook(
    text: str, ranks: int, links: int, diameter: int
) -> None:
    made = topology(text)
    assert (made.ranks, len(made.links)) == (ranks, links)
    assert hop_distances(made).max() == diameter


def test_a_nic_shared_by_gpus_is_one_node() -> None:
    made = topology("dgx2:nodes=2")
    nics = [i for i, n in enumerate(made.nodes) if n.kind is NodeKind.NIC]
    assert len(nics) == 16
    up = [x for x in made.links if x.src in nics and not made.nodes[x.dst].stores]
    assert {float(x.bandwidth) for x in up} == {12.5}


def test_a_dead_cable_takes_the_symmetries_that_need_it() -> None:
    whole, broken = topology("torus:4x4"), topology("torus:4x4,dead=0-1")
    assert len(broken.links) == len(whole.links) - 2
    assert whole.symmetries
    assert not set(broken.symmetries) & set(whole.symmetries)
    assert verified(broken) == broken.symmetries
    # Rotating the boxes still holds when the same cable is dead in all of them.
    both = topology("dgx1:nodes=2,dead=0-1,8-9")
    assert verified(both) == both.symmetries
    assert both.symmetries


@pytest.mark.parametrize("name", host_names())
def test_no_symmetry_that_a_machine_file_declares_is_wrong(name: str) -> None:
    assert len(topology(name).symmetries) == len(load_host(name).moves) > 0


def test_a_machine_without_nics_cannot_be_joined() -> None:
    with pytest.raises(BadTopology, match="how hosts of z52 are connected"):
        topology("z52:nodes=2")


NVLS = ("multicast", "reduces", "issuer_in_group")
SHARP = ("multicast", "reduces", "turns")


def able(text: str) -> dict[str, tuple[str, ...]]:
    return {n.name: n.capabilities for n in topology(text).nodes if n.capabilities}


def test_sharp_is_for_switches_that_can() -> None:
    assert able("dgx-h100") == {}
    assert able("dgx-h100:nvls=on") == able("dgx-h100:sharp=on") == {"nvswitch0": NVLS}
    assert able("dgx-a100:nodes=2,nics=1,sharp=fabric") == {"rail0": SHARP}
    assert able("dgx-h100:nodes=2,nics=1,sharp=all") == {
        "nvswitch0": NVLS,
        "nvswitch1": NVLS,
        "rail0": SHARP,
    }
    assert set(able("dgx-h100:nodes=4,fabric=pods:2,sharp=fabric")) == {"pod0", "pod1"}
    both = "dgx-h100:nvls=on*1+dgx-a100*2:fabric=rails,sharp=fabric"
    assert set(able(both)) == {"nvswitch0", *(f"rail{i}" for i in range(8))}


def test_the_flag_for_capabilities_is_told_in_its_own_spelling() -> None:
    with pytest.raises(UserError, match="names no switch") as caught:
        with_capable("hub:4", ["hub"])
    assert caught.value.hint == "rail0=multicast+reduces+turns"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("hub:4", "hub:4,capable=hub:none"),
        ("hub:4,capable=hub:reduces", "hub:4,capable=hub:reduces,hub:none"),
        (
            "a.json:capable=a:reduces,hub:none,nodes=2",
            "a.json:capable=a:reduces,hub:none,hub:none,nodes=2",
        ),
    ],
)
def test_the_flag_for_capabilities_replaces_what_the_text_says(text: str, made: str) -> None:
    assert with_capable(text, ["hub=none"]) == made


def test_capabilities_of_single_switches_are_replaced_and_keep_what_symmetry_is_left() -> None:
    text = "dgx-h100:nodes=4,nvls=on,capable=rail0..1:multicast+reduces+turns,nvswitch3:none"
    made = topology(text)
    assert able(text) == {
        "nvswitch0": NVLS,
        "nvswitch1": NVLS,
        "nvswitch2": NVLS,
        "rail0": SHARP,
        "rail1": SHARP,
    }
    assert all(is_automorphism(made, image) for image in made.symmetries)


@pytest.mark.parametrize(
    ("fabric", "switches", "reach"),
    [
        ("star", 1, True),
        ("rails", 8, False),
        ("rails+spine,oversub=2", 9, True),
        ("planes:2", 2, False),
        ("pods:2", 3, True),
    ],
)
def test_fabrics_join_the_nics_as_they_say(fabric: str, switches: int, reach: bool) -> None:
    made = topology(f"dgx-a100:nodes=4,fabric={fabric}")
    nodes = plain_machine(made).machine.nodes
    outside = [n for n in nodes if n.kind is NodeKind.SWITCH and n.host is None]
    assert len(outside) == switches
    # GPU 0 of one box reaches GPU 1 of the next over the fabric alone, or only through its box.
    assert bool(hop_distances(made)[0, 9] == 1) == reach


def test_an_oversubscribed_spine_has_that_much_less() -> None:
    made = topology("dgx-a100:nodes=4,fabric=pods:2,oversub=4")
    spine = [n.name for n in made.nodes].index("spine")
    assert {float(x.bandwidth) for x in made.links if x.dst == spine} == {16 * 25 / 4}


def test_two_boxes_back_to_back() -> None:
    made = topology("ndv2:nodes=2,fabric=direct")
    between = [x for x in made.links if made.nodes[x.src].host != made.nodes[x.dst].host]
    assert [(float(x.bandwidth), float(x.latency)) for x in between] == [(12.5, 1.3)] * 2
    with pytest.raises(BadTopology, match="two hosts"):
        topology("ndv2:nodes=3,fabric=direct")


def test_islands_name_the_gpus_that_reach_each_other() -> None:
    assert islands(topology("dgx1:nodes=2")) == (tuple(range(16)),)
    assert islands(topology("line:5,dead=1-2")) == ((0, 1), (2, 3, 4))
    assert islands(topology("hub:4,dead=2-hub")) == ((0, 1, 3), (2,))
