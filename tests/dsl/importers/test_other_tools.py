"""Networks of ASTRA-sim (analytical, ns-3, SimAI) and topologies of msccl-tools."""

import json
from fractions import Fraction
from typing import Any

import pytest

from weft.dsl.base.errors import BadFile
from weft.dsl.base.spans import Source
from weft.dsl.importers.recognized import read_any
from weft.dsl.machines.spec import parse_options
from weft.dsl.nouns.topology import Topology

THREE = """# as the examples
topology: [ Ring, FullyConnected, Switch ]  # Ring, Switch, FullyConnected
npus_count: [ 2, 8, 4 ]  # number of NPUs
bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s
latency: [ 50.0, 500.0, 2000.0 ]  # ns
"""
GIB = Fraction(1 << 30, 10**9)
SWITCHED = "9 1 8\n8\n" + "".join(f"8 {i} 400Gbps 0.0005ms 0\n" for i in range(8))
SIMAI = "6 2 2 1 10 H100\n4 5 3 \n" + (
    "0 4 2880Gbps 0.000025ms 0\n1 4 2880Gbps 0.000025ms 0\n0 5 2880Gbps 0.000025ms 0\n"
    "1 5 2880Gbps 0.000025ms 0\n2 5 2880Gbps 0.000025ms 0\n2 4 2880Gbps 0.000025ms 0\n"
    "0 3 200Gbps 0.0005ms 0\n1 3 200Gbps 0.0005ms 0\n2 3 200Gbps 500ns 0.01\n4 5 1GB/s 1us 0\n"
)
BOX: dict[str, Any] = {
    "msccl_type": "topology",
    "name": "box4",
    "switches": [[[0, 1, 2, 3], [0, 1, 2, 3], 4, "sw"]],
    "links": [[0, 2, 1, 1], [2, 0, 1, 1], [1, 1, 0, 2], [0, 1, 2, 0]],
}


def read(text: str, options: str = "") -> Topology:
    return read_any(text, "a.txt", parse_options("a.txt", Source("t", f"a.txt:{options}"), 6))


def classes(made: Topology) -> dict[tuple[Fraction, Fraction], int]:
    kinds = [(x.bandwidth, x.latency) for x in made.links]
    return {kind: kinds.count(kind) for kind in kinds}


def test_a_class_of_links_for_each_dimension() -> None:
    made = read(THREE)
    assert (made.ranks, len(made.nodes)) == (64, 80)
    assert classes(made) == {
        (200 * GIB, Fraction(50, 1000)): 64,
        (100 * GIB, Fraction(500, 1000)): 448,
        (50 * GIB, Fraction(2)): 128,
    }
    ends = {(x.src, x.dst) for x in made.links}
    assert {(0, 1), (0, 2), (0, 14)} <= ends
    assert (0, 3) not in ends  # differs in two dimensions
    assert (0, 16) not in ends  # through a switch
    for image in made.symmetries:
        assert {(image[a], image[b]) for a, b in ends} == ends


def test_ns3_has_full_duplex_links() -> None:
    made = read(SWITCHED)
    assert (made.ranks, len(made.nodes)) == (8, 9)
    assert classes(made) == {(Fraction(50), Fraction(1, 2)): 16}
    ring = read("3 0 3\n\n0 1 25Gbps 5us 0\n1 2 25Gbps 5us 0\n2 0 25Gbps 5us 0\n")
    assert classes(ring) == {(Fraction(25, 8), Fraction(5)): 6}


def test_simai_has_hosts_and_nvswitches() -> None:
    made = read(SIMAI)
    assert (made.ranks, len(made.nodes), made.host_of) == (3, 6, (0, 0, 1))
    assert (Fraction(1), Fraction(1)) in classes(made)
    assert any("1 links lose packets" in note for note in made.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("8 7 400Gbps 0.0005ms 0\n", "8 7 400Gbps", "ends within its links"),
        ("8 7 400Gbps", "8 9 400Gbps", "'9' is not a number below 9"),
        ("8 7 400Gbps", "8 7 400", "'400' is not a number with a unit"),
        ("8 7 400Gbps 0.0005ms", "8 7 400Gbps 0.0005", "'0.0005' is not a number with"),
        ("9 1 8", "999999 1 8", "more than 65536 nodes"),
    ],
)
def test_wrong_ns3(old: str, new: str, message: str) -> None:
    assert old in SWITCHED
    with pytest.raises(BadFile, match=message):
        read(SWITCHED.replace(old, new, 1))


def test_chunks_a_round_are_bandwidths_of_an_option() -> None:
    made = read(json.dumps(BOX), "bw=20GB/s,alpha=1us")
    ends = {(x.src, x.dst): x.bandwidth for x in made.links}
    assert (made.ranks, len(made.links), made.name) == (4, 11, "box4")
    assert ends[0, 1] == 40
    assert ends[3, 0] == 20  # links[dst][src]
    assert (0, 3) not in ends
    assert [(one.name, one.bandwidth, len(one.links)) for one in made.resources] == [("sw", 80, 11)]
    nested = read(json.dumps(BOX | {"switches": [BOX["switches"]]}), "bw=20GB/s,alpha=1us")
    assert nested.digest() == made.digest()
