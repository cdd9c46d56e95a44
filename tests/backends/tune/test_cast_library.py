"""A library with plans in which switches sum and copy, from the race to all that reads it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from weft.backends.cli import main
from weft.backends.cli.flags.search import ResynthFlags
from weft.backends.cli.verbs.resynth import as_before
from weft.backends.report.html.library_page import library_html
from weft.backends.tune.artefacts import Wanted
from weft.backends.tune.folder import texts_of
from weft.backends.tune.options import TuneOptions, timing_of
from weft.backends.tune.tune import tune
from weft.dsl.base.files import write_folder
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import IN_SWITCHES, Library, read

MACHINE = "hub:4,bw=450GB/s,capable=hub:multicast+reduces+issuer_in_group,family=h100"
ASKED = ("classic{algorithm=nvls}", "classic{algorithm=ring,chunks=1}")


def few(label: str, work: str, given: Sequence[Any]) -> list[Any]:
    """Do all jobs here, but ask two algorithms only."""
    module, _, name = work.partition(":")
    function = getattr(import_module(module), name)
    return [
        {"schedules": [], "why": "not asked"}
        if label == "searching" and one["engine"] not in ASKED
        else json.loads(json.dumps(function(one)))
        for one in given
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of an allreduce of 16 MiB on four GPUs at one NVSwitch."""
    machine, size = topology(MACHINE), 16 << 20
    options = TuneOptions(
        SizeRange(size, size), Wanted(("mscclpp-json",)), protocols=("Simple",), effort=1.0
    )
    found = tune(machine, make("allreduce", 4), options, few)
    library = Library(
        MACHINE, machine, size, size, timing_of(options), (found.tuned,), {"weft": "0"}
    )
    texts = texts_of(library, [found.files])
    out = tmp_path_factory.mktemp("switched") / "library"
    write_folder(str(out), texts | {"report.html": library_html(library, texts)})
    return out


def test_the_switch_wins_and_the_plan_says_what_it_asks_for(folder: Path) -> None:
    library = read(folder)
    (one,) = library.tuned
    (plan,) = one.plans
    assert plan.candidate == "nvls, Simple x4"
    assert one.chosen_us[0] < 0.7 * min(x for x in one.baseline_us() if x is not None)
    assert any(IN_SWITCHES in line and "256 bytes" in line for line in one.remarks)
    assert {a.in_place for a in plan.artefacts} == {False, True}
    for artefact in plan.artefacts:
        text = (folder / artefact.file).read_text(encoding="utf-8")
        assert '"channel_type":"switch"' in text
        assert '"name":"glres"' in text
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert IN_SWITCHES in page


def test_every_verb_reads_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(folder), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {"schedule", "mscclpp-json", "time", "race"} <= {one["name"] for one in checks}
    assert main(["show", str(folder)]) == 0
    assert IN_SWITCHES in capsys.readouterr().out
    assert main(["deploy", str(folder), "-o", str(tmp_path / "how")]) == 0
    assert "cuMem" in capsys.readouterr().out
    assert main(["diff", str(folder), str(folder)]) == 0


TIMES = "time   algbw   busbw #wrong"
GPUS = "".join(
    f"#  Rank  {r} Group  0 Pid   123{r} on  node01 device  {r} [0000:{r}b:00] NVIDIA H100\n"
    for r in range(4)
)
RUN = f"""# nThread 1 nGpus 1 minBytes 16777216 maxBytes 16777216 step: 2(factor) iters: 20
{GPUS}#       size         count      type   redop    root     {TIMES}     {TIMES}
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
    16777216       4194304     float     sum      -1 {" 86.0  195.08  292.62      0" * 2}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 292.62
#
"""


def test_a_measured_run_stands_beside_the_time_of_the_plan(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "all_reduce-after.txt"
    log.write_text(RUN, encoding="utf-8")
    main(["verify-run", str(log), "--library", str(folder), "--json"])
    (one,) = read(folder).tuned
    assert f"{one.chosen_us[0]:.6g}"[:6] in capsys.readouterr().out


def test_a_library_of_plans_alone_is_made_again_for_its_runtime(folder: Path) -> None:
    """Its files name none; by another one its times could not be compared with the new ones."""
    old = read(folder)
    old = replace(old, timing={**old.timing, "runtime": "executor"})
    again = as_before(ResynthFlags(library=str(folder)), old)
    assert again.target == "executor"
    assert again.protocols == ("Simple",)
    assert again.to == "mscclpp-json"


def test_a_claim_that_is_quicker_than_the_plan_is_found(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    data = json.loads(texts["library.json"])
    for one in data["tuned"]:
        one["chosen_us"] = [0.9 * us for us in one["chosen_us"]]
    wrong = tmp_path / "wrong"
    write_folder(str(wrong), texts | {"library.json": json.dumps(data)})
    assert main(["check", str(wrong), "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert "time" in {one["name"] for one in checks if not one["ok"]}
