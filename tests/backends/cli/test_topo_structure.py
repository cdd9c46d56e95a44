"""``weft topo show --structure`` and ``weft topo diff``."""

from command import Weft


def test_topo_diff_and_structure_on_the_command_line(weft: Weft) -> None:
    ran = weft("topo", "diff", "dgx1", "dgx1:dead=0-4").ended(1)
    assert "links: 2 gone, 0 new, 0 slower, 0 faster, 30 pairs as before" in ran.out
    ran = weft("topo", "diff", "torus:2x3", "torus:3x2", "--json").ended(0)
    assert len(ran.json["renaming"]) == 6
    assert "the same machine" in weft("topo", "diff", "torus:2x3", "torus:3x2").ended(0).out
    weft("topo", "diff", "dgx1", "ring_rotations").ended(2, "cannot be compared")
    weft("topo", "diff", "ring_rotations", "ring_rotations").ended(2, "expected a topology, got")
    ran = weft("topo", "show", "ndv2:nodes=2", "--structure", "--json").ended(0)
    assert {x["node"] for x in ran.json["structure"]["splits"]} == {"nic0.0", "nic1.0", "fabric"}
