"""What a file or a folder is, told by verbs that need another one."""

from pathlib import Path

import networkx as nx
from command import Weft

from weft.dsl.catalogue import topology


def test_folders_and_logs_say_what_they_are(weft: Weft, tmp_path: Path) -> None:
    quick = ("-t", "ring:3", "-c", "allgather", "-q")
    one = ("--objective", "bandwidth")
    assert weft("synth", *quick, "-o", tmp_path / "frontier").code == 0
    assert (
        weft("synth", *quick, *one, "-o", tmp_path / "s.json", "--log", tmp_path / "log").code == 0
    )
    assert weft("sweep", *quick, "-e", "classic", "--size", "1KiB", "-o", tmp_path / "w").code == 0
    (tmp_path / "library" / "schedules").mkdir(parents=True)
    for name, told, hint in (
        ("frontier", "expected a file, got a directory", "frontier/allgather-1steps"),
        ("log", "the log of a search", "--log LOG"),
        ("w", "the folder of a sweep", "w/schedules"),
        ("w/sweep.json", "the rows of a sweep", "beside it"),
        ("library", "lost its manifest", "weft tune"),
    ):
        weft("diff", tmp_path / name, "ring:3").ended(2, told, hint)
        ran = weft("show", tmp_path / name)
        if (tmp_path / name).is_dir():
            inside = sorted(path.name for path in (tmp_path / name).iterdir())
            assert (ran.code, all(one in ran.out for one in inside)) == (0, True), ran
        else:
            assert (ran.code, told in ran.err, hint in ran.err) == (2, True, True), (name, ran.err)


def test_a_log_is_drawn_with_its_own_schedule_only(weft: Weft, tmp_path: Path) -> None:
    for ranks in (3, 4):
        words = ("-t", f"ring:{ranks}", "-c", "allgather", "--objective", "bandwidth")
        files = ("-o", tmp_path / f"{ranks}.json", "--log", tmp_path / f"{ranks}.log")
        assert weft("synth", *words, *files).code == 0
    page = ("--format", "html", "-o", tmp_path / "page.html", "-f")
    assert weft("show", tmp_path / "3.json", "--log", tmp_path / "3.log", *page).code == 0
    weft("show", tmp_path / "3.json", "--log", tmp_path / "4.log", *page).ended(
        2, "allgather on ring:4, where the schedule"
    )


def test_a_machine_in_any_format_of_the_importers_is_recognized(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "ring.gml"
    file.write_text("\n".join(nx.generate_gml(topology("ring:3").to_networkx())))
    ran = weft("check", file, "--json")
    assert (ran.code, ran.json["kind"]) == (0, "topology")
