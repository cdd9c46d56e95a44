"""The verbs that read files: check, show, compile, run, and what they say of bad ones."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import Weft
from msccl_files import SAMPLES
from nccl_files import SERVERS, xml
from shared import samples
from taccl_files import TOPOLOGIES


def changed(file: Path, change: Callable[[dict[str, object]], object]) -> Path:
    """The JSON file after a change."""
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    return file


# --- check ----------------------------------------------------------------------------------------


def test_a_good_schedule_passes(weft: Weft, triangle: Path) -> None:
    ran = weft("check", triangle, "--json").ended(0)
    assert ran.json["schema"] == 1
    assert (ran.json["status"], ran.json["kind"]) == ("ok", "schedule")
    assert all(set(c) == {"name", "ok", "detail"} and c["ok"] for c in ran.json["checks"])


def test_a_schedule_that_forgets_a_rank_fails(weft: Weft, triangle: Path) -> None:
    def drop_one(data: dict[str, dict[str, list[int]]]) -> None:
        for column in data["transfers"].values():
            if column is not None:
                column.pop()

    ran = weft("check", changed(triangle, drop_one), "--json")  # type: ignore[arg-type]
    assert ran.code == 1
    assert ran.json["status"] == "failed"
    assert [c["ok"] for c in ran.json["checks"]] == [True, False]


def test_a_disconnected_machine_says_who(weft: Weft, tmp_path: Path) -> None:
    one_way = {"edges": [[0, 1, 25, 0.7]], "gpu_ids": [0, 1]}
    (tmp_path / "t.json").write_text(json.dumps(one_way))
    assert "rank 1 cannot reach rank 0" in weft("check", tmp_path / "t.json").ended(1).out


def test_standard_input_is_recognised(weft: Weft, triangle: Path) -> None:
    assert weft("check", "-", stdin=triangle.read_text()).code == 0
    assert weft("check", "-", stdin="  GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2 X\n").code == 0


OURS = {
    **{name: ("msccl-xml", ".xml", SAMPLES[name]) for name in SAMPLES},
    **{name: ("topology", ".xml", xml(server)) for name, server in SERVERS.items()},
    **{name: ("topology", ".json", json.dumps(data)) for name, data in TOPOLOGIES.items()},
}


@pytest.mark.parametrize("name", OURS)
def test_every_sample_is_recognised_and_good(weft: Weft, tmp_path: Path, name: str) -> None:
    kind, suffix, text = OURS[name]
    file = tmp_path / f"sample{suffix}"
    file.write_text(text)
    is_good(weft, file, kind)


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["msccl-xml", "nccl-topo", "taccl/topo"])
def test_every_file_of_others_is_recognised_and_good(weft: Weft, folder: str) -> None:
    for file in samples(folder):
        is_good(weft, file, "msccl-xml" if folder == "msccl-xml" else "topology")


def is_good(weft: Weft, file: Path, kind: str) -> None:
    ran = weft("check", file, "--json")
    assert (ran.code, ran.err, ran.json["kind"]) == (0, "", kind)


# --- compile and run ------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--in-place",), ("--instances", "2", "--protocol", "LL")])
@pytest.mark.parametrize("target", ["msccl", "rccl", "executor"])
def test_what_is_compiled_is_checked_and_runs(
    weft: Weft, triangle: Path, tmp_path: Path, target: str, flags: tuple[str, ...]
) -> None:
    xml = tmp_path / "a.xml"
    made = weft(
        "compile", triangle, "--to", "msccl-xml", "--target", target, *flags, "-o", xml, "--json"
    ).ended(0)
    assert [c["name"] for c in made.json["checks"]] == ["program", "execution"]
    assert made.json["file"] == str(xml)
    ran = weft("run", xml, "--on", "numpy", "--interleavings", "20", "--json")
    assert (ran.code, ran.json["status"]) == (0, "ok")
    place = "in place" if "--in-place" in flags else "out of place"
    assert ran.json["checks"][-1]["detail"].startswith(place)


def test_an_artefact_on_stdout_is_nothing_but_that(weft: Weft, triangle: Path) -> None:
    ran = weft("compile", triangle).ended(0)
    assert ran.out.startswith("<algo ")
    assert ran.out.endswith("</algo>\n")
    assert "Executed" in ran.err
    assert weft("compile", triangle, "-q").err == ""
    assert "Executed" not in weft("compile", triangle, "--no-run").err


def test_a_wrong_schedule_is_not_compiled(weft: Weft, triangle: Path, tmp_path: Path) -> None:
    changed(triangle, lambda d: d["transfers"]["chunk"].__setitem__(0, 2))  # type: ignore[index]
    weft("compile", triangle, "-o", tmp_path / "a.xml").ended(1)
    assert not (tmp_path / "a.xml").exists()


def test_a_wrong_program_fails_to_run(weft: Weft, triangle: Path, tmp_path: Path) -> None:
    xml = tmp_path / "a.xml"
    weft("compile", triangle, "-o", xml)
    text = xml.read_text()
    # Rank 0 puts what comes from rank 1 where rank 2's share belongs.
    wrong = re.sub(r'(type="r"[^\n]*dstoff=)"1"', r'\1"2"', text, count=1)
    assert wrong != text
    xml.write_text(wrong)
    ran = weft("run", xml, "--json")
    assert (ran.code, ran.json["status"]) == (1, "failed")


def test_a_program_for_another_collective_is_wrong(
    weft: Weft, triangle: Path, tmp_path: Path
) -> None:
    weft("compile", triangle, "-o", tmp_path / "a.xml")
    assert weft("run", tmp_path / "a.xml", "-c", "allgather").code == 0
    assert weft("run", tmp_path / "a.xml", "-c", "alltoall").code in (1, 2)


# --- show -----------------------------------------------------------------------------------------


def test_a_schedule_is_shown_with_steps_links_and_gantt(weft: Weft, triangle: Path) -> None:
    ran = weft("show", triangle).ended(0)
    assert re.search(r"^ +1 +1 +6 +0 +6 +100%$", ran.out, re.M)  # the only step
    assert len(re.findall(r"gpu\d -> gpu\d +1 +25 +100%", ran.out)) == 6
    assert ran.out.count("|█|") == 3
    data = weft("show", triangle, "--json").json
    assert (data["steps"], data["rounds"], data["chunks"], data["transfers"]) == (1, 1, 1, 6)


def test_a_topology_is_shown_as_a_matrix(weft: Weft) -> None:
    out = weft("show", "dgx1").out
    # GPU 0 of a DGX-1 has double links to 1 and 4, single ones to 2 and 3.
    assert re.search(r"^0 +- 50 25 25 50 +\. +\. +\.$", out, re.M)
    assert weft("topo", "show", "dgx1").out == out
    assert re.search(r"^0 +- ~125 ~125", weft("show", "hub:3,bw=125GB/s").out, re.M)


def test_the_toml_file_of_a_box_is_a_topology(weft: Weft, tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(
        '# mine\nschema = 1\nname = "mine"\ngpus = 2\n[[cables]]\npairs = [[0, 1]]\n'
        'lane = "25GB/s"\nalpha = "1us"\nsource = "made up"\n'
    )
    for name in (box, f"{box}:nodes=1"):
        ran = weft("check", name, "--json")
        assert (ran.code, ran.json["kind"]) == (0, "topology")
        ran = weft("show", name, "--json")
        assert (ran.code, ran.json["ranks"]) == (0, 2)
    box.write_text(box.read_text().replace("alpha", "alhpa"))
    assert weft("check", box).code == 2


def test_xml_is_shown_as_a_listing(weft: Weft, triangle: Path, tmp_path: Path) -> None:
    weft("compile", triangle, "-o", tmp_path / "a.xml")
    out = weft("show", tmp_path / "a.xml").out
    assert len(re.findall(r"^rank \d: input 1, output 3, scratch 0 chunks$", out, re.M)) == 3
    assert len(re.findall(r"^ +\d+ s +i\[0\] +x1$", out, re.M)) == 6


def test_a_collective_is_shown(weft: Weft, tmp_path: Path) -> None:
    from weft.dsl.nouns.collective import make

    (tmp_path / "c.json").write_text(json.dumps(make("gather", 3, roots=[1]).to_json()))
    out = weft("show", tmp_path / "c.json").out
    assert re.search(r"^ +2 +2 +1$", out, re.M)  # chunk 2: from rank 2 to the root 1


# --- bad files ------------------------------------------------------------------------------------

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"weft": "schedule", "schema": 1', "not JSON"),
        ("", "empty"),
        ("hello", "neither a schedule"),
        (DEEP, "nested too deeply"),
        ('{"weft": "schedul", "schema": 1}', "unknown kind 'schedul'"),
        ('{"weft": "schedule", "schema": 9}', "schema 9 is not known"),
        ('{"weft": "schedule", "schema": 1}', "'topology' is missing"),
        (
            '{"weft": "topology", "schema": 1, "name": "x", "nodes": [], "links": []}',
            "expected GPUs",
        ),
        ('{"weft": "topology", "schema": 1, "name": NaN}', "NaN"),
        ('{"edges": [[0, 1, 1e999, 1]], "gpu_ids": [0, 1]}', "number"),
        ('{"edges": [[0, 1, -5, 1]], "gpu_ids": [0, 1]}', "bandwidth"),
        ('{"edges": [[0, 1, 0, 1]], "gpu_ids": [0, 1]}', "bandwidth"),
        ('{"a": 1, "a": 2}', "twice"),
        ("<algo", "ends inside a tag"),
        ('<?xml version="1.0"?><algo></algo>', "declaration"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><system>&a;</system>', ""),
        ("<system><cpu></system>", ""),
        ("[1, 2", "not JSON"),
        ("[" + "9" * 5000 + "]", ""),
    ],
)
def test_a_bad_file_is_told_at_once(weft: Weft, tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "bad"
    file.write_text(content)
    for verb in ("check", "show"):
        ran = weft(verb, file).ended(2, message)
        assert ran.out == ""
        assert "Traceback" not in ran.err


def test_paths_that_hold_no_file(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path, message in (
        (tmp_path / "absent.json", "no such file"),
        (tmp_path / "binary", "not a text file"),
        ("dgx9", "unknown file or name 'dgx9'"),
    ):
        for verb in ("check", "show"):
            ran = weft(verb, path)
            assert (ran.code, ran.out) == (2, "")
            assert message in ran.err


def test_a_folder_is_listed_and_not_checked(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    ran = weft("check", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "got a directory" in ran.err
    ran = weft("show", tmp_path)
    assert (ran.code, "binary" in ran.out) == (0, True)


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root may do everything: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_permission(
    weft: Weft, triangle: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    weft("compile", triangle, "-o", tmp_path / "a.xml")  # loads what only the owner may read
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    text = triangle.read_text()
    request.getfixturevalue("nobody")
    for path in (closed, closed / "a.xml"):
        weft("compile", "-", "-o", path / "b.xml", stdin=text).ended(2, "Permission denied")
        weft("check", path / "a.json").ended(2, "Permission denied")


@pytest.mark.parametrize("flag", [(), ("-f",)])
def test_outputs_in_the_way(
    weft: Weft, triangle: Path, tmp_path: Path, flag: tuple[str, ...]
) -> None:
    xml = tmp_path / "a.xml"
    xml.write_text("old")
    ran = weft("compile", triangle, "-o", xml, *flag).ended(0 if flag else 2)
    assert (xml.read_text() == "old") == (not flag)
    if not flag:
        assert "hint: -f overwrites it" in ran.err
    assert "a directory" in weft("compile", triangle, "-o", tmp_path, *flag).err
    assert "does not exist" in weft("compile", triangle, "-o", tmp_path / "no/a", *flag).err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("verb", ["synth", "tune"])
@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("/proc/x", "cannot be written"),
        ("{a_file}/x", "is a file, not a folder"),
        ("/proc", "mount point"),
        (".", "cannot replace the current folder"),
        ("", "cannot replace the current folder"),
    ],
)
def test_unwritable_outputs_are_refused_before_the_search(
    weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, output: str, says: str
) -> None:
    (tmp_path / "a").write_text("")
    for name in ("weft.backends.cli.verbs.synth.synthesize", "weft.backends.cli.verbs.tune.tune"):
        monkeypatch.setattr(name, None)
    where = output.format(a_file=tmp_path / "a")
    more = ("--sizes", "1KiB") if verb == "tune" else ()
    weft(verb, "-t", "ring:4", "-c", "allgather", *more, "-o", where, "-f").ended(2, says)


@pytest.mark.parametrize("verb", ["synth", "compile"])
def test_an_output_that_is_a_loop_of_links(
    weft: Weft, tmp_path: Path, triangle: Path, verb: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    question = ("-t", "ring:4", "-c", "allgather") if verb == "synth" else (triangle,)
    weft(verb, *question, "-o", tmp_path / "loop").ended(
        2, "cannot be written: Too many levels of symbolic links"
    )


def test_the_log_is_not_the_output(weft: Weft, tmp_path: Path) -> None:
    same = tmp_path / "same.json"
    weft(*"synth -t ring:4 -c allgather --objective latency --log".split(), same, "-o", same).ended(
        2, "the log and the output are the same file"
    )
    assert not same.exists()
    ran = weft("synth", "-t", "ring:4", "-c", "allgather", "--log", "-", "--json")
    assert (ran.code, ran.json["error"]["hint"]) == (2, "--log FILE")


# --- paths with options ---------------------------------------------------------------------------


MATRIX = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tPIX\nmlx5_0\tPIX\tPIX\t X \n"
CUT = {
    "edges": [[a, b, 25, 0.7] for a, b in ((0, 1), (1, 0), (2, 3), (3, 2), (1, 2))],
    "gpu_ids": [0, 1, 2, 3],
}


@pytest.mark.parametrize("verb", [("show",), ("topo", "show"), ("check",)])
def test_options_after_a_path_are_those_of_its_importer(
    weft: Weft, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(MATRIX)
    for path in (f"{file}:nodes=2", "-:nodes=2"):
        ran = weft(*verb, "--json", "--", path, stdin=MATRIX).ended(0)
        if verb != ("check",):
            assert (ran.json["ranks"], ran.json["hosts"]) == (4, 2)
    weft(*verb, f"{file}:ndoes=2").ended(2, "'nodes'")


def test_a_file_whose_name_looks_like_options_is_that_file(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "a:nodes=2").write_text(MATRIX)
    (tmp_path / "a").write_text("not read")
    assert weft("show", tmp_path / "a:nodes=2", "--json").json["ranks"] == 2


def test_a_sketch_file_may_have_parameters(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "s.sketch").write_text("sketch mine\n")
    assert weft("show", f"{tmp_path / 's.sketch'}:nodes=2").out == "sketch mine\n"


# --- topo -----------------------------------------------------------------------------------------


def test_the_catalogue_is_listed(weft: Weft) -> None:
    names = {t["name"] for t in weft("topo", "list", "--json").json["topologies"]}
    assert {"ring", "torus", "hypercube", "dgx1", "dgx2", "dgx-a100"} <= names
    assert "dgx1" in weft("topo", "list").out


def test_what_is_imported_reads_back_the_same(weft: Weft, tmp_path: Path) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    assert weft("topo", "import", "dgx1", "-o", first).code == 0
    assert weft("topo", "import", first, "-o", second).code == 0
    assert first.read_text() == second.read_text()
    assert weft("topo", "import", "dgx1").out == first.read_text()
    same = [weft("topo", "show", t, "--json").json["digest"] for t in ("dgx1", first)]
    assert same[0] == same[1]


@pytest.mark.parametrize("name", ["nope", "nope:nodes=2", "nope.txt"])
def test_an_import_of_what_is_not_there_is_of_no_file(weft: Weft, name: str) -> None:
    ran = weft("topo", "import", name).ended(2)
    assert ran.err.startswith(f"error: no such file\n --> {name}\n\nhint: ")


def test_only_a_group_is_shown(weft: Weft) -> None:
    assert weft("topo", "show", "dgx1", "--group", "0,1,4..5", "--json").json["ranks"] == 4


def test_islands_are_shown(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(CUT))
    for verb in (("show",), ("topo", "show")):
        ran = weft(*verb, tmp_path / "t.json")
        assert re.search(r"^islands +2: 0\.\.1 \| 2\.\.3 \(no way there and back", ran.out, re.M)
        assert weft(*verb, tmp_path / "t.json", "--json").json["islands"] == [[0, 1], [2, 3]]
    assert "islands" not in weft("topo", "show", "ring:3").out
    assert weft("topo", "show", "ring:3", "--json").json["islands"] == [[0, 1, 2]]


def test_many_islands_are_cut(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"edges": [], "gpu_ids": list(range(100))}))
    (line,) = re.findall("^islands.*", weft("topo", "show", tmp_path / "t.json").out, re.M)
    assert line.split()[:5] == ["islands", "100:", "0", "|", "1"]
    assert "…" in line
    assert len(line) < 400


def test_run_obeys_its_options_or_refuses_them(weft: Weft, tmp_path: Path) -> None:
    schedule, xml = tmp_path / "b.json", tmp_path / "b.xml"
    weft(*"synth -t ring:3 -c broadcast --root 2 --objective latency -o".split(), schedule).ended(0)
    assert weft("compile", schedule, "-o", xml).code == 0
    assert 'name="ring-3_broadcast_root2"' in xml.read_text()
    assert weft("run", xml, "--root", "2").code == 0
    assert weft("run", xml, "--root", "0").code == 1
    for flags in (("--in-place",), ("--lanes", "2"), ("--roots", "0,1")):
        assert weft("run", xml, *flags).code == 2
    assert weft("run", schedule, "--root", "0").code == 2
    assert weft("run", schedule, "--in-place", "--interleavings", "5").code == 0


def test_run_holds_a_program_to_the_limits_of_its_target(weft: Weft, tmp_path: Path) -> None:
    schedule, xml = tmp_path / "r.json", tmp_path / "r.xml"
    assert (
        weft(
            "synth", "-t", "ring:3", "-c", "allreduce", "--objective", "bandwidth", "-o", schedule
        ).code
        == 0
    )
    assert weft("compile", schedule, "-o", xml).code == 0
    for verb in ("run", "check"):
        codes = [weft(verb, xml, "--target", name).code for name in ("msccl", "rccl")]
        assert codes == [0, 1], verb


def test_a_frontier_is_a_folder_and_replaces_no_other_files(weft: Weft, tmp_path: Path) -> None:
    problem = ("synth", "-t", "ring:3", "-c", "allgather")
    told = weft(*problem, "-o", tmp_path / "x.json").ended(2, "folder for the frontier")
    assert "Read" not in told.err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    assert "Read" not in weft(*problem, "-f", "-o", tmp_path / "mine").ended(2).err
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_a_pcie_box_is_named_after_its_file(weft: Weft, tmp_path: Path) -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nGPU1\tPIX\t X \t0-7\n"
    (tmp_path / "pcie.txt").write_text(text)
    shown = weft("show", f"{tmp_path}/pcie.txt:pcie_bw=20GB/s", "--json")
    assert json.loads(shown.out)["topology"] == "pcie.txt:pcie_bw=20GB/s", shown.err
    assert "without NVLink" in shown.out
    assert "NVLink counts" not in shown.out


@pytest.mark.parametrize(
    "command", [("simulate", "a", "-t", "ring:4"), ("bound", "-t", "a", "-c", "allgather")]
)
def test_an_input_that_is_a_link_to_nothing(
    weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    weft(*command).ended(2, "a link that leads nowhere")


def test_closed_streams_are_no_bug(triangle: Path, tmp_path: Path) -> None:
    """Their numbers are not given to files that are opened, and nobody reads what is printed."""
    start = [
        sys.executable,
        "-c",
        "from weft.backends.cli.frame.start import main; raise SystemExit(main())",
    ]
    for words, closed, code in (
        (("simulate", triangle, "--size", "1MiB"), ">&-", 0),
        (("simulate", triangle, "--size", "1MiB", "--json"), ">&- 2>&-", 0),
        (("simulate", "-", "--size", "1MiB"), "<&-", 2),
    ):
        command = shlex.join(map(str, (*start, *words)))
        ran = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True, cwd=tmp_path)
        assert ran.returncode == code, ran.stderr


# --- outputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "topo import kept.txt:nodes=2 -o kept.txt -f",
        "topo import ./kept.txt -o link.txt -f",
        "topo calibrate ring:4 kept.txt --page kept.txt -f",
        "synth -t kept.txt*2+kept.txt*1 -c allgather -o kept.txt -f --objective time",
        "synth -t ring:4 -c allgather -s kept.txt --log kept.txt -f",
        "verify-run kept.txt -t ring:4 -o kept.txt -f",
        "tuner other.txt kept.txt:algorithm=ring,protocol=ll -o kept.txt -f",
        "run kept.txt --on numpy --trace kept.txt -f",
        "show kept.txt -o kept.txt",
        "sketch import kept.txt -t ring:4 --machine kept.txt -f",
    ],
)
def test_no_verb_replaces_a_file_that_it_reads(
    weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kept.txt").write_text("GPU0")
    Path("link.txt").symlink_to("kept.txt")
    ran = weft(*line.split())
    assert (ran.code, ran.out) == (2, "")
    assert "the output is the input" in ran.err
    assert Path("kept.txt").read_text() == "GPU0"
