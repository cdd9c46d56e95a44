"""Checks as text: what is alike is folded, the verdict fits one line."""

import json

from weft.backends.check.checks import Check, checks_text, verdict_text

MANY = [Check("limits", False, f"rank {n} tb 0: cnt 99 is outside") for n in range(302)]
FEW = [Check("form", True, "2 ranks"), Check("races", True, "maybe", "warning")]


def test_findings_that_differ_in_numbers_are_folded() -> None:
    lines = checks_text([*FEW, *MANY]).splitlines()
    assert lines[1:] == [
        "ok       form    2 ranks",
        "warning  races   maybe",
        *(f"FAILED   limits  rank {n} tb 0: cnt 99 is outside" for n in range(3)),
        "FAILED   limits  … and 299 more like it (-v: all)",
    ]
    assert len(checks_text(MANY, whole=True).splitlines()) == 303


def test_few_findings_are_all_shown() -> None:
    assert len(checks_text(MANY[:7]).splitlines()) == 8


def test_the_verdict_is_one_line() -> None:
    assert verdict_text(FEW) == "ok: 1 check, 1 warning"
    assert verdict_text([*FEW, *MANY]) == (
        "FAILED: 302 of 304 checks; limits: rank 0 tb 0: cnt 99 is outside"
    )


def test_q_prints_the_verdict_and_json_all(weft, triangle) -> None:
    told = weft("check", triangle, "-q")
    assert (told.code, told.out) == (0, "ok: 2 checks\n")
    assert len(json.loads(weft("check", triangle, "-q", "--json").out)["checks"]) == 2
