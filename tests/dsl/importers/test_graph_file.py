"""Graphs of networkx, GraphML and GML: what is read, what is told, what is refused."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from strategies import topologies

from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import NodeKind, Topology

MACHINES = ("dgx1", "dgx-a100:nodes=2", "torus:3x3", "ndv2:nodes=2", "mi250:nodes=2", "dgx-h100")


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", ["graphml", "gml"])
def test_files_of_networkx_give_the_machine_back(tmp_path: Path, name: str, kind: str) -> None:
    made, file = topology(name), tmp_path / f"machine.{kind}"
    getattr(nx, f"write_{kind}")(made.to_networkx(), file)
    assert topology(str(file)) == made


@given(topologies())
def test_a_graph_gives_any_machine_back(made: Topology) -> None:
    back = Topology.from_networkx(made.to_networkx())
    assert replace(back, resources=()) == replace(made, resources=())
    # A graph keeps resources on its edges, in no order of their own.
    assert {(r.name, frozenset(r.links), r.bandwidth) for r in back.resources} == {
        (r.name, frozenset(r.links), r.bandwidth) for r in made.resources
    }


def test_networkx_computes_on_the_graph() -> None:
    graph = nx.DiGraph(topology("dgx1").to_networkx())
    flow = nx.maximum_flow_value(graph, "gpu0", "gpu7", capacity="bandwidth")
    assert flow == 150  # 2 x 25 + 2 x 50 GB/s leave gpu0


def test_a_plain_graph_is_gpus_with_cables_both_ways_and_says_so() -> None:
    made = Topology.from_networkx(nx.cycle_graph(4), "ring", bandwidth=25)
    assert (made.ranks, len(made.links), made.links[0].bandwidth) == (4, 8, 25)
    text = " ".join(made.notes)
    for missing in ("no `kind`", "no `bandwidth`", "no `latency`", "no GPU has a `rank`"):
        assert missing in text


def test_attributes_with_units_kinds_ranks_and_shared_resources() -> None:
    graph = nx.MultiGraph()
    graph.add_node("b", kind="gpu", rank=1, host=0)
    graph.add_node("a", kind="gpu", rank=0, host=0)
    graph.add_node("sw", kind="switch", multicast="true")
    graph.add_edge("a", "sw", bandwidth="200Gb/s", latency="700ns", shared="nic0=20;port=100/3")
    graph.add_edge("b", "sw", bandwidth=25, latency=0.35, shared="nic0=20", color="red")
    made = Topology.from_networkx(graph)
    assert [(n.name, n.kind, n.multicast) for n in made.nodes] == [
        ("a", NodeKind.GPU, False),
        ("b", NodeKind.GPU, False),
        ("sw", NodeKind.SWITCH, True),
    ]
    assert [(x.src, x.dst, x.bandwidth, x.latency) for x in made.links] == [
        (1, 2, 25, Fraction(7, 20)),
        (2, 1, 25, Fraction(7, 20)),
        (0, 2, 25, Fraction(7, 10)),
        (2, 0, 25, Fraction(7, 10)),
    ]
    assert [(r.name, r.links, r.bandwidth) for r in made.resources] == [
        ("nic0", (0, 1, 2, 3), 20),
        ("port", (2, 3), Fraction(100, 3)),
    ]
    assert made.notes == ("attributes of edges that are not read: color",)


@pytest.mark.parametrize(
    ("node", "edge", "why"),
    [
        ({"kind": "gpus"}, {"bandwidth": 1}, "unknown kind 'gpus'"),
        ({"host": "x"}, {"bandwidth": 1}, "host"),
        ({"multicast": "perhaps"}, {"bandwidth": 1}, "multicast must be true or false"),
        ({"rank": 3}, {"bandwidth": 1}, "ranks of the graph's 2 GPUs are not 0 … 1"),
        ({}, {}, "have no `bandwidth`"),
        ({}, {"bandwidth": "fast"}, "edge 0 - 1"),
        ({}, {"bandwidth": float("nan")}, "edge 0 - 1"),
        ({}, {"bandwidth": 0}, "bandwidth 0"),
        ({}, {"bandwidth": 1, "latency": -1}, "latency -1"),
        ({}, {"bandwidth": 1, "lanes": 0}, "0 lanes"),
        ({}, {"bandwidth": 1, "lanes": 1.5}, "lanes must be an integer"),
        ({}, {"bandwidth": 1, "shared": "nic0"}, "shared resource 'nic0' is not name=bandwidth"),
        ({}, {"bandwidth": 1, "shared": "nic0=1;nic0=2"}, "'nic0' has 2 GB/s here and 1"),
    ],
)
def test_attributes_that_cannot_be_read(
    node: dict[str, object], edge: dict[str, object], why: str
) -> None:
    graph = nx.Graph()
    graph.add_node(0, **node)
    graph.add_edge(0, 1, **edge)
    with pytest.raises(BadTopology, match=why):
        Topology.from_networkx(graph)


GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="l" for="node" attr.name="label" attr.type="string"/>
  <key id="b" for="edge" attr.name="bandwidth" attr.type="double"/>
  <graph edgedefault="undirected">
    <node id="n0"><data key="l">left</data></node>
    <node id="n1"><data key="l">right</data></node>
    <edge source="n0" target="n1"><data key="b">12.5</data></edge>
  </graph>
</graphml>
"""


def test_labels_are_names_and_options_fill_in(tmp_path: Path) -> None:
    file = tmp_path / "two.graphml"
    file.write_text(GRAPHML)
    made = topology(f"{file}:alpha=2us")
    assert [n.name for n in made.nodes] == ["left", "right"]
    assert [(x.bandwidth, x.latency) for x in made.links] == [(Fraction(25, 2), 2)] * 2
    file.write_text(GRAPHML.replace('<data key="b">12.5</data>', ""))
    assert topology(f"{file}:bw=50GB/s").links[0].bandwidth == 50
    with pytest.raises(BadTopology, match=r"2 edges .* have no `bandwidth`") as caught:
        topology(str(file))
    assert "bw=25GB/s" in str(caught.value.hint)


def test_gml_with_comments_and_ids_only(tmp_path: Path) -> None:
    file = tmp_path / "two.gml"
    edge = "edge [ source 0 target 1 bandwidth 25 ]"
    file.write_text(f'# by hand\nCreator "me"\ngraph [ node [ id 0 ] node [ id 1 ] {edge} ]\n')
    made = topology(str(file))
    assert (made.ranks, [n.name for n in made.nodes], len(made.links)) == (2, ["0", "1"], 2)
