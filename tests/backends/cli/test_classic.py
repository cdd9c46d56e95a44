"""Classic algorithms on the command line: listed, compiled by name, solved for, simulated."""

from pathlib import Path

import pytest
from command import Weft


def test_list_algorithms(weft: Weft) -> None:
    found = weft("list", "algorithms", "--json").json["algorithms"]
    by_name = {(e["name"], e["collective"]): e for e in found}
    ring = by_name["ring", "allreduce"]
    assert (ring["ranks"], ring["steps"], ring["share"]) == ("any", [14], ["7/4"])
    assert by_name["swing", "allreduce"]["ranks"] == "even"
    assert by_name["recursive_doubling", "allgather"]["ranks"] == "powers of 2"
    blue = by_name["blueconnect", "allreduce"]
    assert (blue["steps"], blue["share"]) == ([6, 2], ["3/2", "1/4"])
    assert all(e["source"] for e in found)
    text = weft("list", "algorithms").out
    assert all(e["name"] in text for e in found)
    assert "classic" in weft("list", "engines").out


@pytest.mark.parametrize("placement", [(), ("--in-place",)])
@pytest.mark.parametrize(
    ("name", "collective", "ranks"),
    [
        ("classic:ring{collective=allreduce,ranks=4}", "allreduce", 4),
        ("classic:two_step{ranks=6,shape=3+2}", "alltoall", 6),
        ("classic:torus{collective=allgather,on=torus:3x3}", "allgather", 9),
    ],
)
def test_compile_takes_a_name(
    weft: Weft, tmp_path: Path, name: str, collective: str, ranks: int, placement: tuple[str, ...]
) -> None:
    file = tmp_path / "out.xml"
    ran = weft("compile", name, *placement, "--target", "rccl", "-o", file, "--json").ended(0)
    assert (ran.json["collective"], ran.json["ranks"]) == (collective, ranks)
    assert weft("check", file).code == 0


def test_synth_with_the_engine(weft: Weft, tmp_path: Path) -> None:
    """The example of the brief: a ring over the double NVLinks of a DGX-1."""
    file = tmp_path / "out.json"
    ran = weft(
        *"synth -t dgx1 -c allreduce -e".split(),
        "classic{algorithm=ring}",
        "--objective",
        "bandwidth",
        "-o",
        file,
        "--json",
    ).ended(0)
    (point,) = ran.json["points"]
    assert (point["steps"], point["rounds_per_chunk"]) == (14, "7/4")
    assert ran.json["status"] == "feasible"
    assert weft("check", file).code == 0
    assert weft("compile", file, "-o", tmp_path / "out.xml").code == 0


def test_simulate_and_show_take_a_name(weft: Weft) -> None:
    ran = weft(
        "simulate",
        "classic:ring{collective=allreduce,on=dgx1}",
        *"-t dgx1 --size 1MiB --json".split(),
    ).ended(0)
    assert ran.json["sizes"][0]["us"] > 0
    assert "ring_allgather" in weft("show", "classic:ring{collective=allgather,ranks=3}").out


def test_what_is_shown_is_written_where_it_is_asked_for(weft: Weft, tmp_path: Path) -> None:
    named, file = "classic:ring{collective=allgather,ranks=3}", tmp_path / "shown.txt"
    printed = weft("show", named).out
    assert weft("show", named, "-o", file).code == 0
    assert file.read_text() == printed
    assert weft("show", named, "-o", file).code == 2
    weft("show", named, "-o", tmp_path / "page.html").ended(2, "--format html")
