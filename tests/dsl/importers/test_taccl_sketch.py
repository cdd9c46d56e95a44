"""TACCL's sketches: what they say in our language, on which machine, and what is refused."""

import json
import random
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from shared import SHARED, samples
from taccl_files import SKETCHES, TOPOLOGIES

from weft.dsl.base.errors import BadFile, BadTopology, UserError
from weft.dsl.catalogue import paired, topology
from weft.dsl.importers.sketches.taccl_rules import Imported, translate
from weft.dsl.importers.taccl_sketch import TacclSketch, read_taccl_sketch
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.format import format
from weft.dsl.language.lint import allowed_pairs, lint
from weft.dsl.language.machine import SketchMachine
from weft.dsl.language.parse import parse
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.sketch import Relay, Symmetry
from weft.dsl.nouns.topology import Topology

HUB: dict[str, Any] = {
    "name": "hub_1MB",
    "gpus_per_node": 4,
    "nics_per_node": 2,
    "alpha": 0.5,
    "node_betas_list": [8],
    "node_invbws_list": [8.5],
    "remote_alpha": 3,
    "remote_beta": 105,
    "remote_invbw": 108,
}
ALONE: dict[str, Any] = {
    "nnodes": 1,
    "intranode_sketch": {"strategy": "none"},
    "symmetry_offsets": [],
    "hyperparameters": {"input_chunkup": 3},
}
BETWEEN: dict[str, Any] = {"strategy": "relay", "internode_conn": {"1": [0], "3": [2]}}
TWO: dict[str, Any] = {**ALONE, "nnodes": 2, "internode_sketch": BETWEEN}
SWITCH: dict[str, Any] = {
    "strategy": "switch",
    "switches": [[0, 1, 2, 3]],
    "switch_hyperedge_strategy": ["uc-min"],
}


def read(data: object) -> TacclSketch:
    return read_taccl_sketch(data, "s.json", "idea")


def machine(tmp_path: Path, sketch: TacclSketch, *, split: bool = False, **keys: Any) -> Topology:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({**HUB, **keys}))
    return paired(file.read_text(), str(file), sketch, split=split)


def imported(tmp_path: Path, data: object) -> Imported:
    """The sketch in our language, its text held to what every import promises."""
    sketch = read(data)
    there = machine(tmp_path, sketch)
    found = translate(sketch, there)
    judge(found.text, there)
    return found


def taccl_pair(tmp_path: Path, topo: str, sketch: TacclSketch, *, split: bool = False) -> Topology:
    """The machine of one of TACCL's topology files, for a sketch."""
    file = tmp_path / f"{topo}.json"
    file.write_text(json.dumps(TOPOLOGIES[topo]))
    return paired(file.read_text(), str(file), sketch, split=split)


def attempt(
    tmp_path: Path, topo: str, sketch: TacclSketch
) -> tuple[Topology, Imported] | UserError:
    try:
        there = taccl_pair(tmp_path, topo, sketch)
        return there, translate(sketch, there)
    except UserError as error:
        return error


def judge(text: str, there: Topology) -> None:
    tree = parse(text)
    assert format(tree) == text
    assert lint(tree, there) == ()
    elaborate(tree, there)


def rules(found: Imported) -> list[str]:
    """The lines of a text, without comments and name."""
    return [line for line in found.text.splitlines() if line and line[0] not in "#s"] + [
        line for line in found.text.splitlines() if line.startswith(("switch", "symmetry"))
    ]


# ---- every pair of a sketch and a machine


@pytest.mark.shared
@pytest.mark.parametrize("file", samples("taccl/sketch", "*.json"), ids=lambda f: f.stem)
def test_the_shipped_sketches_are_those_we_wrote(file: Path) -> None:
    assert json.loads(file.read_text()) == SKETCHES[file.stem]


@pytest.mark.shared
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_shipped_topologies_say_what_we_wrote(name: str) -> None:
    """But for numbers that were rounded."""
    theirs = json.loads((SHARED / "data" / "taccl" / "topo" / f"{name}.json").read_text())
    ours = TOPOLOGIES[name]
    assert set(theirs) == set(ours)
    for key in ("name", "gpus_per_node", "nics_per_node", "alpha", "remote_alpha"):
        assert theirs[key] == ours[key]
    assert theirs["remote_beta"] == pytest.approx(ours["remote_beta"], rel=1e-3)
    assert theirs["node_betas_list"] == pytest.approx(ours["node_betas_list"], abs=0.25)


@pytest.mark.parametrize("sketch", SKETCHES)
@pytest.mark.parametrize("machine", TOPOLOGIES)
def test_every_pair_is_imported_or_refused(tmp_path: Path, machine: str, sketch: str) -> None:
    read_in = read_taccl_sketch(SKETCHES[sketch], f"{sketch}.json", sketch)
    family = "dgx2" if "dgx2" in machine else "ndv2"
    done = attempt(tmp_path, machine, read_in)
    if isinstance(done, UserError):
        assert family not in sketch
        assert "is the sketch for another machine?" in done.hint
        return
    there, found = done
    assert there.ranks == read_in.nodes * (16 if family == "dgx2" else 8)
    judge(found.text, there)
    # What the files name is not lost: each rotation is a symmetry of its own machine's sketch.
    if family in sketch:
        assert found.text.count("rotate") == len(read_in.rotations)
        assert ("own data first" in found.text) == read_in.own_first


def test_the_relay_of_two_dgx2_is_the_sketch_of_our_catalogue() -> None:
    """On the DGX-2 of the catalogue too, whose NICs are nodes."""
    there = topology("dgx2:nodes=2")
    text = translate(read_taccl_sketch(SKETCHES["sk1-dgx2-n2"], "s", "s"), there).text
    judge(text, there)
    assert "relay (2p, 2p+1) through 2p+1 -> 2p, own data first" in text
    assert "for p in 0..7:" in text
    assert "symmetry: rotate 2 within node, rotate nodes" in text


# ---- what a sketch means, by TACCL's own formulas


def drawn(seed: int) -> dict[str, Any]:
    """A sketch of 2 to 4 nodes of four GPUs, with relays; rotations that may not hold."""
    draw = random.Random(seed)
    senders = sorted(draw.sample(range(4), draw.randint(1, 4)))
    each = draw.randint(1, 3)
    conn: Any = {str(s): draw.sample(range(4), each) for s in senders}
    if draw.random() < 0.4:
        conn, senders = draw.choice(["fully-connected", "direct-map"]), [0, 1, 2, 3]
    between: dict[str, Any] = {"strategy": "relay", "internode_conn": conn}
    if draw.random() < 0.7:
        relayed: dict[str, list[int]] = {}
        for g in range(4):
            for s in draw.sample(senders, draw.randint(1, min(2, len(senders)))):
                relayed.setdefault(str(s), []).append(g)
        between |= {"gpus_to_sender_rev_map": relayed, "enforce_ordering": draw.random() < 0.5}
    nodes = draw.randint(2, 4)
    offsets = [[4, 4 * nodes], *[[draw.randint(1, 3), 4]] * draw.randint(0, 1)]
    return {**TWO, "nnodes": nodes, "internode_sketch": between, "symmetry_offsets": offsets}


@pytest.mark.parametrize("seed", range(40))
def test_the_rules_are_those_of_taccl(tmp_path: Path, seed: int) -> None:
    """On a machine where any GPU reaches any other, so that only the rules say no."""
    data = drawn(seed)
    file = tmp_path / "t.json"
    file.write_text(json.dumps(HUB))
    there = topology(f"{file}:nodes={data['nnodes']}")
    sketch = read(data)
    made = elaborate(parse(translate(sketch, there).text), there)
    rank = range(there.ranks)
    allowed = allowed_pairs(made, SketchMachine(there))
    conn = data["internode_sketch"]["internode_conn"]
    for a, b in product(rank, rank):
        if a // 4 != b // 4:
            words = {"fully-connected": True, "direct-map": a % 4 == b % 4}
            meant = words[conn] if isinstance(conn, str) else b % 4 in conn.get(str(a % 4), ())
            assert allowed[a, b] == meant, (a, b)
    relays = [r for r in made.rules if isinstance(r, Relay)]
    given = data["internode_sketch"].get("gpus_to_sender_rev_map")
    assert bool(relays) == (given is not None)
    for g in rank if given else ():
        ways = {pair for r in relays if g in r.sources for pair in r.through}
        assert {a % 4 for a, _ in ways} == {int(s) for s, to in given.items() if g % 4 in to}
        assert all(allowed[pair] for pair in ways)
        assert all(r.own_first == sketch.own_first for r in relays)
    rotated = {
        tuple((r % k + o) % k + k * (r // k) for r in rank) for o, k in data["symmetry_offsets"]
    }
    images = {r.image for r in made.rules if isinstance(r, Symmetry)}
    assert images <= rotated
    assert len(images) >= 1  # the rotation of the nodes always holds


# ---- what the keys say


def test_a_single_node(tmp_path: Path) -> None:
    found = imported(tmp_path, {**ALONE, "intranode_sketch": SWITCH, "symmetry_offsets": [[1, 4]]})
    assert rules(found) == ["chunks 3", "switch hub: few peers", "symmetry: rotate 1 within node"]
    assert [r.where for r in found.remarks] == [
        "nnodes",
        "intranode_sketch.switch_hyperedge_strategy",
    ]
    assert "TACCL's sketch idea for hub_1MB (4 GPUs)." in found.text


def test_connections_are_the_only_links(tmp_path: Path) -> None:
    found = imported(tmp_path, {**TWO, "symmetry_offsets": [[4, 8], [2, 4]]})
    assert rules(found) == [
        "chunks 3",
        "between nodes:",
        "    only links 1 -> 0",
        "    only links 3 -> 2",
        "symmetry: rotate nodes, rotate 2 within node",
    ]


def test_many_connections_become_a_loop(tmp_path: Path) -> None:
    conn = {str(s): [3 - s, s] for s in range(4)}
    found = imported(tmp_path, {**TWO, "internode_sketch": {**BETWEEN, "internode_conn": conn}})
    assert "between nodes:\n    for p in 0..3: only links p -> (3-p, p)\n" in found.text


@pytest.mark.parametrize(
    ("conn", "says"),
    [
        ("direct-map", "forbid links between nodes except same local rank"),
        ({str(s): [s] for s in range(4)}, "forbid links between nodes except same local rank"),
        ("fully-connected", None),
    ],
)
def test_words_for_connections(tmp_path: Path, conn: Any, says: str | None) -> None:
    found = imported(tmp_path, {**TWO, "internode_sketch": {**BETWEEN, "internode_conn": conn}})
    assert rules(found)[1:] == ([says] if says else [])


def test_sender_and_receiver_of_each_relay(tmp_path: Path) -> None:
    relays = {
        **BETWEEN,
        "gpus_to_sender_rev_map": {"1": [0, 1, 2], "3": [2, 3]},
        "enforce_ordering": True,
    }
    found = imported(tmp_path, {**TWO, "internode_sketch": relays})
    assert "    relay (0, 1) through 1 -> 0, own data first\n" in found.text
    assert "    relay 2 through 1 -> 0, 3 -> 2, own data first\n" in found.text
    assert "    relay 3 through 3 -> 2, own data first\n" in found.text


@pytest.mark.parametrize(
    ("conn", "through"), [("fully-connected", "any -> any"), ({"0": [1]}, "0 -> 1")]
)
def test_own_data_first_without_a_map(tmp_path: Path, conn: Any, through: str) -> None:
    relays = {**BETWEEN, "internode_conn": conn, "enforce_ordering": True}
    found = imported(tmp_path, {**TWO, "internode_sketch": relays})
    assert f"relay any through {through}, own data first" in found.text


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ([[4, 16]], "symmetry: rotate nodes"),
        ([[8, 16]], "symmetry: rotate nodes by 2"),
        ([[4, 8]], "symmetry: rotate 4 in blocks of 8"),
        ([[6, 4]], "symmetry: rotate 2 within node"),
        ([[1, 2], [1, 2]], "symmetry: rotate 1 in blocks of 2"),
    ],
)
def test_rotations(tmp_path: Path, offsets: list[list[int]], says: str) -> None:
    everywhere = {"strategy": "relay", "internode_conn": "fully-connected"}
    data = {**TWO, "nnodes": 4, "internode_sketch": everywhere, "symmetry_offsets": offsets}
    assert rules(imported(tmp_path, data))[-1] == says


# ---- the machine


def test_the_nic_is_shared_by_its_connections(tmp_path: Path) -> None:
    data = {**TWO, "nnodes": 3, "internode_sketch": {**BETWEEN, "internode_conn": "direct-map"}}
    there = machine(tmp_path, read(data))
    nic = Fraction(1 << 20, 105 * 1000)
    across = [i for i, x in enumerate(there.links) if max(x.src, x.dst) < there.ranks]
    assert len(across) == 6 * 4
    assert {(there.links[i].bandwidth, there.links[i].latency) for i in across} == {(nic, 3)}
    shared = {r.name: r for r in there.resources}
    assert len(shared) == 2 * 3 * 2
    out = shared["nic1.1 out"]
    assert out.bandwidth == nic
    assert {there.links[i].src for i in out.links} == {6, 7}
    assert len(out.links) == 4
    assert {there.links[i].dst for i in shared["nic2.0 in"].links} == {8, 9}


def test_nodes_meet_over_the_connections_only(tmp_path: Path) -> None:
    there = machine(tmp_path, read(TWO))
    across = {(h.src, h.dst) for h in find_hops(there).hops if h.src // 4 != h.dst // 4}
    assert across == {(1, 4), (3, 6), (5, 0), (7, 2)}
    inside = [h.route for h in find_hops(there).hops if h.src // 4 == h.dst // 4]
    assert len(inside) == 2 * 12  # over the switch, and no second way through a NIC


def test_the_static_split_is_an_option(tmp_path: Path) -> None:
    """16 connections on 2 NICs: β is 10.3 · 8, in whole units; two nodes share nothing."""
    everywhere = {"strategy": "relay", "internode_conn": "fully-connected"}
    two = machine(
        tmp_path, read({**TWO, "internode_sketch": everywhere}), split=True, remote_beta=10.3
    )
    across = [x for x in two.links if max(x.src, x.dst) < two.ranks]
    assert {x.bandwidth for x in across} == {Fraction(1 << 20, 82 * 1000)}
    assert two.resources == ()
    three = machine(tmp_path, read({**TWO, "nnodes": 3}), split=True)
    ports = {r.name: len(r.links) for r in three.resources}
    assert ports["gpu1 out"] == 2
    assert ports["gpu0 in"] == 2
    assert "gpu0 out" not in ports


@pytest.mark.parametrize(
    ("topo", "idea", "beta", "chunk_per_us"),
    [
        ("topo-ndv2-1MB", "sk1-ndv2-n2", 105, 1 << 20),
        ("topo-ndv2-1MB", "sk3-ndv2-n2", 840, 1 << 20),
        ("topo-ndv2-1MB", "sk2-ndv2-n4", 6720, 1 << 20),
        ("topo-dgx2-1MB", "sk1-dgx2-n2", 105, 1 << 20),
        ("topo-dgx2-1KB", "sk2-dgx2-n2", 20, 100 << 10),
        ("topo-ndv2-1KB", "sk2-ndv2-n2", 656, 100 << 10),
    ],
)
def test_the_split_is_what_taccl_computes(
    tmp_path: Path, topo: str, idea: str, beta: int, chunk_per_us: int
) -> None:
    """The β of TACCL's own loader, run on such files."""
    read_in = read_taccl_sketch(SKETCHES[idea], "s", "s")
    there = taccl_pair(tmp_path, topo, read_in, split=True)
    hosts = there.host_of
    widths = {
        x.bandwidth
        for x in there.links
        if max(x.src, x.dst) < there.ranks and hosts[x.src] != hosts[x.dst]
    }
    assert widths == {Fraction(chunk_per_us, beta * 1000)}


def test_the_split_is_said(tmp_path: Path) -> None:
    everywhere = {"strategy": "relay", "internode_conn": "fully-connected"}
    notes = machine(tmp_path, read({**TWO, "internode_sketch": everywhere})).notes
    assert any("8 times slower than a NIC" in note for note in notes)
    one = {"strategy": "relay", "internode_conn": {"0": [0]}}
    notes = machine(tmp_path, read({**TWO, "internode_sketch": one})).notes
    assert any("2 times faster than a NIC" in note for note in notes)


def test_of_an_allreduce_the_block_of_every_gpu_is_cut(tmp_path: Path) -> None:
    sketch = read({**TWO, "hyperparameters": {"input_chunkup": 3}})
    there = machine(tmp_path, sketch)
    assert "\nchunks 3\n" in translate(sketch, there, "allgather").text
    found = translate(sketch, there, "allreduce")
    assert "\nchunks 24\n" in found.text
    assert any("24 chunks" in remark.text for remark in found.remarks)


# ---- what is wrong


def test_several_nodes_need_something_between_them() -> None:
    with pytest.raises(BadFile, match="'internode_sketch' is missing"):
        read({**ALONE, "nnodes": 2})


def test_a_switch_that_is_not_there() -> None:
    with pytest.raises(BadFile, match="GPUs 0 and 5 are on no switch") as caught:
        translate(
            read({**ALONE, "intranode_sketch": {**SWITCH, "switches": [[0, 5]]}}), topology("dgx1")
        )
    assert "another machine" in caught.value.hint
    cables = {**ALONE, "intranode_sketch": {**SWITCH, "switches": [[0, 1, 2, 3]]}}
    found = translate(read(cables), topology("dgx1"))
    assert "switch" not in found.text
    assert any("have cables, no switch" in r.text for r in found.remarks)


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(HUB))
    with pytest.raises(BadFile, match="for 2 nodes, not for 3"):
        paired(file.read_text(), f"{file}:nodes=3", read(TWO))
    with pytest.raises(BadFile, match="for 2 equal nodes, dgx1 has 1 node"):
        translate(read(TWO), topology("dgx1"))


def test_nodes_without_nics_are_not_joined(tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match="has no NICs"):
        machine(tmp_path, read(TWO), nics_per_node=0)


@pytest.mark.parametrize("name", ["7up", "ü b", "-", "sk1-ndv2"])
def test_any_file_name_gives_a_name(tmp_path: Path, name: str) -> None:
    sketch = read_taccl_sketch(ALONE, "s.json", name)
    there = machine(tmp_path, sketch)
    judge(translate(sketch, there).text, there)
