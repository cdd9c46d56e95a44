"""TE-CCL's inputs: its machines without its slips, or with them; what it asks."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.importers.sketches.taccl_rules import teccl_sketch
from weft.dsl.importers.teccl import read_teccl_input
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.format import format
from weft.dsl.language.lint import lint
from weft.dsl.language.parse import parse
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.symmetry import verified


def machine(tmp_path: Path, options: str = "", **shape: Any) -> Topology:
    file = tmp_path / "in.json"
    file.write_text(json.dumps({"TopologyParams": shape}))
    made = topology(f"{file}{options}")
    assert verified(made) == made.symmetries
    assert (hop_distances(made) >= 0).all()
    return made


def across(made: Topology) -> set[tuple[int, int]]:
    """Direct links from box to box."""
    return {
        (x.src, x.dst)
        for x in made.links
        if max(x.src, x.dst) < made.ranks and made.host_of[x.src] != made.host_of[x.dst]
    }


@pytest.mark.parametrize(
    ("shape", "ranks", "links"),
    [
        ({"name": "DGX1"}, 8, 32),
        ({"name": "DGX2"}, 32, 64 + 16),
        ({"name": "NDv2"}, 8, 32),
        ({"name": "NDv2", "chassis": 2}, 16, 64 + 2),
        ({"name": "NDv2", "chassis": 4}, 32, 128 + 8),
        ({"name": "AMD"}, 16, 56),
        ({"name": "AMD", "chassis": 2}, 32, 112 + 64 + 32),
        ({"name": "Mesh"}, 16, 48),
        ({"name": "Mesh", "side_length": 3}, 9, 24),
    ],
)
def test_the_machines(tmp_path: Path, shape: dict[str, Any], ranks: int, links: int) -> None:
    made = machine(tmp_path, **shape)
    assert (made.ranks, len(made.links)) == (ranks, links)


def test_alpha_is_in_seconds_and_chunks_in_gigabytes(tmp_path: Path) -> None:
    made = machine(tmp_path, name="DGX1", alpha=[7e-7, 0], chunk_size=2.5e-05)
    assert {x.latency for x in made.links} == {Fraction(7, 10)}
    assert {x.bandwidth for x in made.links} == {25, 50}
    assert any("1 of 25KB from each GPU: --size 200KB" in note for note in made.notes)


def test_two_ndv2_have_sixteen_gpus(tmp_path: Path) -> None:
    made = machine(tmp_path, name="NDv2", chassis=2)
    assert across(made) == {(0, 9), (8, 1)}
    assert any("here it is a GPU" in note for note in made.notes)
    shipped = machine(tmp_path, ":as_shipped=on", name="NDv2", chassis=2)
    assert shipped.ranks == 15
    place = [n.name for n in shipped.nodes].index("switch-gpu0")
    assert shipped.nodes[place].multicast
    # What GPU 0 had: four cables, its link to rank 9 (now 8), and that from rank 8 (now 7) to 1.
    assert {x.dst for x in shipped.links if x.src == place} == {0, 1, 2, 3, 8}
    assert across(shipped) == {(7, 0)}


def test_two_dgx2_talk_over_pairs(tmp_path: Path) -> None:
    made = machine(tmp_path, name="DGX2", chassis=1, alpha=[1e-6, 0])
    assert across(made) == {
        (16 * a + 2 * p + 1, 16 * b + 2 * p) for p in range(8) for a, b in ((0, 1), (1, 0))
    }
    assert all(n.multicast for n in made.nodes[32:])
    assert any("whatever chassis says" in note for note in made.notes)
    assert any("alpha is not used" in note for note in made.notes)


def test_rows_of_a_mesh_end(tmp_path: Path) -> None:
    made = machine(tmp_path, name="Mesh")
    shipped = machine(tmp_path, ":as_shipped=on", name="Mesh")
    assert len(shipped.links) == 54
    extra = {(x.src, x.dst) for x in shipped.links} - {(x.src, x.dst) for x in made.links}
    assert extra == {(3, 4), (4, 3), (7, 8), (8, 7), (11, 12), (12, 11)}


def test_slips_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    assert any("off by one" in n for n in machine(tmp_path, name="AMD", chassis=2).notes)
    with pytest.raises(UserError, match="not kept"):
        machine(tmp_path, ":as_shipped=on", name="AMD", chassis=2)


@pytest.mark.parametrize(("number", "kind"), [(1, "allgather"), (2, "alltoall")])
def test_what_is_asked(tmp_path: Path, number: int, kind: str) -> None:
    data = {
        "TopologyParams": {"name": "Mesh", "chunk_size": 1e-3},
        "GurobiParams": {"mip_gap": 0.1},
        "InstanceParams": {"collective": number, "num_chunks": 3, "option": 1},
    }
    asked = read_teccl_input(data, "in.json")
    assert asked.collective(16).kind == kind
    assert asked.message(16) == 16 * 3 * 10**6
    assert asked.notes == ("InstanceParams: TE-CCL takes 'option' silently and does not use it",)
    made = machine(tmp_path, name="Mesh")
    text = teccl_sketch(asked, made, "a b").text
    tree = parse(text)
    assert format(tree) == text
    assert lint(tree, made) == ()
    sketch = elaborate(tree, made)
    assert (sketch.collective, sketch.size) == (kind, (48 * 10**6, 48 * 10**6))
