"""Pictures, traces, texts and pages of schedules with casts."""

import json
from pathlib import Path

import pytest
from casts import two_shot, up_and_down

from weft.backends.cli import main
from weft.backends.report.html.schedule import loads_of, schedule_view
from weft.backends.report.html.schedule_page import Shown
from weft.backends.report.trace_check import require_sound
from weft.dsl.nouns.schedule import write
from weft.synth.bounds import bounds
from weft.synth.explain.critical import what_binds

SIZE = 10**6


def test_a_page_lights_the_tree_of_a_cast() -> None:
    one = up_and_down()
    view = schedule_view(Shown.of("x", one, SIZE, bounds(one.topology, one.collective)).look, "x")
    (table,) = view["items"]
    assert table["routes"] == [list(one.casts[0].links)]
    assert table["set"] == [0]
    assert view["moved"] == "transfers and casts"
    assert view["facts"]["casts"] == 1


def test_loads_count_every_leg() -> None:
    one = two_shot(4)
    look = Shown.of("x", one, SIZE, bounds(one.topology, one.collective)).look
    assert loads_of(look).moved.tolist() == pytest.approx([SIZE * 5 / 4] * 8)


def test_what_binds_names_the_busiest_link() -> None:
    found = what_binds(two_shot(4), SIZE)
    assert found.chain == ()
    assert "hub" in found.name


@pytest.mark.parametrize("form", ["svg", "dot", "perfetto", "html"])
def test_every_form_of_show_takes_casts(form: str, tmp_path: Path) -> None:
    file = tmp_path / "casts.json"
    write(file, up_and_down())
    out = tmp_path / f"casts.{form}"
    assert main(["show", str(file), "--format", form, "-o", str(out), "--size", "1MB"]) == 0
    assert out.stat().st_size > 100
    if form == "perfetto":
        require_sound(out.read_text())
        events = json.loads(out.read_text())["traceEvents"]
        legs = [e for e in events if e.get("cat") == "leg"]
        assert {e["name"] for e in legs} >= {"cast 0: chunk 0 +> leaf0", "cast 0: chunk 0 -> 3"}
        assert legs[0]["args"]["sources"] == "0, 1, 2, 3"
