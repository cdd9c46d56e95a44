"""What is shown of a schedule: how much of every link its chunks use, whatever their sizes."""

from pathlib import Path

from shares import in_pieces
from strategies import ring, tree_schedule

from weft.backends.report.text import collective_text, schedule_text
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, gpu, link


def rows(text: str, head: str) -> list[list[str]]:
    """The cells of the table whose first heading is this."""
    lines = text.split("\n")
    begin = next(i for i, line in enumerate(lines) if line.split()[:1] == [head])
    end = next((i for i in range(begin, len(lines)) if not lines[i].strip()), len(lines))
    return [line.split() for line in lines[begin:end]]


def test_unequal_chunks_count_by_their_grains() -> None:
    fan = Topology("fan", (gpu(0), gpu(1), gpu(2)), (link(0, 1, 25), link(0, 2, 25)))
    plain = make("scatter", 3)
    cut = plain.cut([[4], [3, 1], [4]])
    s = Schedule.of(fan, cut, [Transfer(1, 0, 1, (0,)), Transfer(3, 0, 2, (1,), 1)])
    table = rows(schedule_text(s), "link")
    assert table[0][1] == "grains"
    loads = {row[2]: row[3] for row in table[1:] if row[1] == "->"}
    assert loads == {"gpu1": "3", "gpu2": "4"}
    assert "4 grains of every unit" in collective_text(cut)
    assert "chunks of every" not in collective_text(plain)


def test_equal_chunks_count_one_each() -> None:
    plain = tree_schedule(ring(4), make("allgather", 4))
    grains = in_pieces(plain, [[2, 2]] * 4)
    both = [rows(schedule_text(s), "link") for s in (plain, grains)]
    assert both[0][0][1] == "chunks"
    assert [4 * int(row[3]) for row in both[0][1:]] == [int(row[3]) for row in both[1][1:]]


def test_links_of_hosts_stand_once(tmp_path: Path) -> None:
    """Copies of a machine whose hosts keep their traffic (``copy_of``) are shown as one link."""
    names = ["GPU0", "GPU1", "NIC0", "NIC1"]
    pcie = "".join(
        "\t".join([name, *("X" if other == name else "PHB" for other in names)]) + "\n"
        for name in names
    )
    pcie = "\t".join(["", *names]) + f"\n{pcie}"
    (tmp_path / "a.txt").write_text(pcie)
    t = topology(f"{tmp_path}/a.txt:nodes=2")
    assert any(node.copy_of for node in t.nodes)
    ways = [min(h.route for h in find_hops(t).hops if (h.src, h.dst) == (0, to)) for to in (1, 2)]
    sent = [Transfer(to, 0, to, way) for to, way in zip((1, 2), ways, strict=True)]
    s = Schedule.of(t, make("alltoall", 4), sent)
    table = rows(schedule_text(s), "link")
    loads = {" ".join(row[:3]): row[3] for row in table[1:]}
    assert len(loads) == len(table) - 1
    (first,) = (load for name, load in loads.items() if name.startswith("gpu0 -> "))
    assert first == "2"
    assert not any(".in" in name or ".1 " in name for name in loads)
