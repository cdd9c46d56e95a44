"""``weft compile`` and its neighbours on algorithms, programs and files of others."""

from pathlib import Path

import pytest
from command import Weft
from msccl_files import hierarchical_allreduce, pairs_allreduce, ring_allreduce

ALGORITHMS = """
from weft import Allgather, Allreduce, program

@program(Allreduce)
def ring(p):
    for step in range(p.ranks - 1):
        for r in range(p.ranks):
            p.chunk(r, (r - step) % p.ranks).reduce_into(rank=(r + 1) % p.ranks)
    for step in range(p.ranks - 1):
        for r in range(p.ranks):
            p.chunk(r, (r + 1 - step) % p.ranks).copy_to(rank=(r + 1) % p.ranks)

@program(Allgather(3), instances=2, protocol="LL")
def star(p):
    for r in range(p.ranks):
        for other in range(p.ranks):
            p.chunk(r, r).copy_to(rank=other)

@program(Allgather(3))
def lazy(p):
    p.chunk(0, 0).copy_to(rank=1)
"""


@pytest.fixture
def algorithms(tmp_path: Path) -> Path:
    path = tmp_path / "algorithms.py"
    path.write_text(ALGORITHMS)
    return path


def test_an_algorithm_by_name_with_options(weft: Weft, algorithms: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.xml"
    named = f"{algorithms}:ring{{ranks=4,chunks=4}}"
    ran = weft("compile", named, "-o", out, "--in-place", "--target", "rccl", "--json").ended(0)
    facts = ran.json
    assert (facts["collective"], facts["ranks"], facts["in_place"]) == ("allreduce", 4, True)
    assert weft("check", out, "--target", "rccl").code == 0
    for verb in ("check", "show", "run"):
        assert weft(verb, named).code == 0
    assert weft("show", named, "--json").json["moves"] == 24


def test_the_algorithm_wishes_and_the_options_decide(weft: Weft, algorithms: Path) -> None:
    ran = weft("compile", f"{algorithms}:star", "-o", algorithms.with_suffix(".xml"), "--json")
    assert (ran.json["protocol"], ran.json["chunks"]) == ("LL", 6)
    ran = weft(
        "compile",
        f"{algorithms}:star",
        "-o",
        algorithms.with_suffix(".2.xml"),
        *"--json --instances 1 --protocol Simple".split(),
    )
    assert (ran.json["protocol"], ran.json["chunks"]) == ("Simple", 3)


def test_errors_of_algorithms(weft: Weft, algorithms: Path) -> None:
    assert "3 algorithms" in weft("compile", algorithms).err
    assert "did you mean 'ring'" in weft("check", f"{algorithms}:rink").err
    assert "needs the option 'ranks'" in weft("compile", f"{algorithms}:ring").err
    weft("check", f"{algorithms}:lazy").ended(2, "algorithms.py")


def test_a_file_of_others_is_compiled_anew(weft: Weft, tmp_path: Path) -> None:
    """From microsoft/msccl, with fused steps, to RCCL, which has none; sizes are kept."""
    file, out = tmp_path / "fused.xml", tmp_path / "plain.xml"
    file.write_text(ring_allreduce(4, minBytes=1024, maxBytes=65536))
    assert weft("check", file, "--target", "rccl").code == 1
    weft("compile", file, "--target", "rccl", "-o", out).ended(0)
    assert weft("check", out, "--target", "rccl").code == 0
    text = out.read_text()
    assert 'minBytes="1024" maxBytes="65536"' in text
    assert 'name="test"' in text
    assert not any(f'type="{fused}"' in text for fused in ("rcs", "rrs", "rrc", "rrcs"))


THEIRS = {"minBytes": None, "maxBytes": None, "outofplace": None}
"""Attributes that msccl-tools leaves out."""


@pytest.mark.parametrize(
    ("copies", "flags", "written", "why"),
    [
        (4, (), "as it came", None),
        (1, ("--target", "executor", "--name", "kept"), "as it came", None),
        (1, ("--instances", "1"), "compiled anew", "flags say how it is compiled"),
        (1, ("--target", "rccl"), "compiled anew", "rccl does not execute rrs"),
    ],
)
def test_a_file_of_others_is_never_made_slower_without_a_word(
    weft: Weft, tmp_path: Path, copies: int, flags: tuple[str, ...], written: str, why: str | None
) -> None:
    """Rings on two levels, whose waits are better than those that compiling anew makes."""
    file, out = tmp_path / "theirs.xml", tmp_path / "ours.xml"
    file.write_text(hierarchical_allreduce(8, 2, copies, **THEIRS))
    asked = ("-t", "dgx-a100:nodes=2", "--size", "64MiB")
    fixed = ("--form", "fixed", "--no-run")
    ran = weft("compile", file, *asked, *flags, *fixed, "-o", out, "--json").ended(0)
    found = ran.json["recompiled"]
    assert found["written"] == written
    (us,), text = found["sizes"], out.read_text()
    target = flags[:2] if "--target" in flags else ()
    timed = weft("simulate", out, *asked, *target, "--json").json["sizes"][0]["us"]
    assert timed == (us["came_us"] if why is None else us["made_us"])
    assert us["came_us"] < us["made_us"]
    assert timed == ran.json["time"]["program_us"]
    if not target:
        timed = weft("simulate", file, *asked, "--json").json["sizes"][0]["us"]
        assert timed == us["came_us"]
    raced = weft("compile", file, *asked, *target, "--no-run", "-o", out, "-f", "--json")
    assert raced.json["time"]["program_us"] <= timed
    if why is None:
        assert "Kept     the program as it came" in ran.err
        assert f'name="{"kept" if "--name" in flags else "test"}"' in text
    else:
        assert f"warning: {us['made_us'] / us['came_us']:.2f} times as slow" in ran.err
        assert why in found["why"]
        assert found["changed"]["thread_blocks"][0] == 5
        assert "Changed  " in ran.err


def test_without_a_machine_nothing_is_compared_and_it_says_so(weft: Weft, tmp_path: Path) -> None:
    file, out = tmp_path / "theirs.xml", tmp_path / "ours.xml"
    file.write_text(ring_allreduce(4))
    ran = weft("compile", file, "-o", out, "--json")
    assert ran.json["recompiled"]["why"] == "nothing names the machine (-t MACHINE)"
    assert "Compared not: nothing names the machine (-t MACHINE); it may be slower" in ran.err
    ran = weft("compile", file, "-o", out, "-f", "-t", "ring:4", "--to", "program")
    assert "Compared not: the simulation knows the runtimes of msccl-xml" in ran.err
    file.write_text(ring_allreduce(4, minBytes=1 << 20, maxBytes=1 << 24))
    ran = weft("compile", file, "-o", out, "-f", "-t", "ring:4", "--json")
    assert [one["bytes"] for one in ran.json["recompiled"]["sizes"]] == [1 << 20, 1 << 24]


@pytest.mark.parametrize(
    ("source", "machine", "told"),
    [
        ("xml", "ring:5", "expected a machine of 4 ranks, got 5 of ring:5"),
        ("schedule", "ring:3", "-t is for files that state no machine; this one is for"),
    ],
)
def test_a_machine_that_says_nothing_is_refused(
    weft: Weft, tmp_path: Path, triangle: Path, source: str, machine: str, told: str
) -> None:
    file = tmp_path / "theirs.xml"
    file.write_text(ring_allreduce(4))
    weft("compile", triangle if source == "schedule" else file, "-t", machine).ended(2, told)


def test_a_program_file_goes_both_ways(weft: Weft, tmp_path: Path) -> None:
    file, middle, out = (tmp_path / name for name in ("a.xml", "b.json", "c.xml"))
    file.write_text(pairs_allreduce(3))
    assert weft("compile", file, "--to", "program", "-o", middle).code == 0
    assert "rank 2" in weft("show", middle).out
    assert weft("check", middle).code == 0
    assert weft("run", middle).code == 0
    assert weft("compile", middle, "-o", out).code == 0
    assert weft("run", out).code == 0


def test_a_wrong_program_is_not_compiled(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "wrong.xml"
    file.write_text(ring_allreduce(3).replace('type="rrcs"', 'type="rcs"', 1))
    weft("compile", file, "-o", tmp_path / "out.xml").ended(1)
    assert not (tmp_path / "out.xml").exists()


def test_listings_after_passes(weft: Weft, tmp_path: Path) -> None:
    file, out = tmp_path / "a.xml", tmp_path / "b.xml"
    file.write_text(ring_allreduce(3))
    ran = weft("compile", file, "-o", out, "-f", "--print-after", "fuse")
    assert ran.err.count("# after ") == 1
    assert "# after fuse" in ran.err
    assert "rrcs" in ran.err
    ran = weft("compile", file, "-o", out, "-f", "--print-after", "all")
    assert ran.err.count("# after ") == 14
    assert "does not run here" in weft("compile", file, "--print-after", "lower").err
    assert "did you mean 'fuse'" in weft("compile", file, "--print-after", "fuss").err


def test_passes_are_listed_with_what_they_take_and_give(weft: Weft) -> None:
    passes = {e["name"]: e for e in weft("list", "passes", "--json").json["passes"]}
    assert passes["weave"]["stage"] == "flow -> program"
    assert passes["channels"]["stage"] == "flow -> flow"
    assert any(option.startswith("lanes") for option in passes["channels"]["options"])


def test_the_output_is_never_the_input(weft: Weft, algorithms: Path) -> None:
    for named in (f"{algorithms}:star", f"{algorithms}:ring{{ranks=4,chunks=4}}"):
        weft("compile", named, "-o", algorithms, "-f").ended(2, "the output is the input")
        assert algorithms.read_text() == ALGORITHMS


def test_one_size_is_a_size_that_every_runtime_takes(
    weft: Weft, algorithms: Path, tmp_path: Path
) -> None:
    """microsoft/msccl takes messages below maxBytes, the others up to it."""
    out = tmp_path / "one.xml"
    assert weft("compile", f"{algorithms}:star", "--size", "1MB", "-o", out).code == 0
    assert 'minBytes="1000000" maxBytes="1000001"' in out.read_text()


def test_boxes_without_a_common_fabric_are_told(weft: Weft, algorithms: Path) -> None:
    named = f"{algorithms}:ring{{ranks=16,chunks=16}}"
    weft("simulate", named, "-t", "dgx-h100:nodes=2", "--size", "1MiB").ended(2, "fabric=star")
    assert weft("simulate", named, "-t", "dgx-h100:nodes=2,fabric=star", "--size", "1MiB").code == 0


BUILT = """
from weft import Builder
from weft.dsl.nouns.collective import custom

swap = custom("swap", 2, [(0, 0, [0], 0), (1, 1, [1], 0)], [(0, 1, [1], 0), (1, 0, [0], 0)])
p = Builder(swap)
p.chunk(0, 0).copy_to(rank=1)
p.chunk(1, 1).copy_to(rank=0)
both = p.algorithm()
"""


def test_an_algorithm_that_a_file_has_built(weft: Weft, tmp_path: Path) -> None:
    file, out = tmp_path / "built.py", tmp_path / "built.xml"
    file.write_text(BUILT)
    assert weft("compile", file, "-o", out).code == 0
    for verb in ("check", "show", "run"):
        assert weft(verb, file).code == 0
    # The collective of the file says what the XML, which calls it custom, is for.
    assert weft("run", out, "-c", file).code == 0
    assert weft("run", out, "-c", f"{file}:both").code == 0
    weft("run", out).ended(2, "-c FILE.py")
    weft("compile", file, "--in-place").ended(2, "both is already built out of place")


def test_a_file_that_defines_nothing(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "nothing.py"
    file.write_text("x = 1\n")
    for verb in ("compile", "check", "run"):
        weft(verb, file).ended(2, "no algorithm and no `collective`", "@program", "collective = ")


def test_an_algorithm_has_its_own_collective(weft: Weft, algorithms: Path) -> None:
    for flag, value in (("-c", "allgather"), ("--root", "1"), ("--roots", "0,1")):
        weft("compile", f"{algorithms}:star", flag, value).ended(
            2, "-c and --root say what an MSCCL XML file or an MSCCL++ plan is for"
        )
