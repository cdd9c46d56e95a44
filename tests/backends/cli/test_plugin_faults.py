"""Faults of packages of others: each is told as theirs, with package, version, place and exit code;
where one is only asked along with others, the command goes on without it.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_packages
from command import Ran, Weft
from kept_workers import kept_workers

from weft.dsl.base import plugins
from weft.dsl.nouns.schedule import read

__all__ = ["kept_workers"]

ENGINE = """
from dataclasses import dataclass, replace
from typing import ClassVar

from weft.dsl.base.errors import Missing, NothingFound
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.base.engine import Outcome, Point, Status
from weft.synth.bounds import bounds
from weft.synth.fabric.occupancy import rounds_per_chunk


def answer(problem, ring=False):
    hops = {(h.src, h.dst): h.route for h in find_hops(problem.topology).hops}
    n = problem.collective.ranks
    if ring:
        ends = [(r, (r + k) % n, (r + k + 1) % n, k) for k in range(n - 1) for r in range(n)]
    else:
        ends = [(a, a, b, 0) for a, b in hops]
    moves = [Transfer(c, a, b, hops[a, b], k) for c, a, b, k in ends]
    schedule = Schedule.of(problem.topology, problem.collective, moves)
    limit = bounds(problem.topology, problem.collective)
    return Point(schedule, schedule.steps, 0, 1, limit.rounds_per_chunk, limit.certificate,
                 rate=rounds_per_chunk(schedule))


@dataclass(frozen=True)
class Toy:
    "Every block straight to every rank."

    name: ClassVar[str] = "toy"
    cites: ClassVar[str] = "none"
    FIELD

    @classmethod
    def availability(cls):
        AVAILABILITY

    def refuses(self, problem):
        REFUSES

    def solve(self, problem, budget, observer):
        point = answer(problem)
        SOLVE
        return Outcome(Status.FEASIBLE, (point,))
"""

RIGHT = {
    "FIELD": "size: int = 1",
    "AVAILABILITY": "return None",
    "REFUSES": "return None if str(problem.collective.kind) == 'allgather' else 'allgather only'",
    "SOLVE": "pass",
}

SYNTH = ("synth", "-t", "full:4", "-c", "allgather", "--objective", "latency")

Toys = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toys:
    """Installs distributions: ``install(modules, points, package=…)``."""

    def installed(modules: dict[str, str], points: dict[str, dict[str, str]], **more: str) -> None:
        site = tmp_path / f"site{len(list(tmp_path.glob('site*')))}"
        toy_packages.install(site, monkeypatch, modules, points, **more)

    return installed


@pytest.fixture
def toy(install: Toys) -> Callable[..., None]:
    """Installs the engine ``toy``, with some lines replaced."""

    def made(**lines: str) -> None:
        text = ENGINE
        for place, line in {**RIGHT, **lines}.items():
            text = text.replace(place, line)
        install({"weft_faulty_engine": text}, {"weft.engines": {"toy": "weft_faulty_engine:Toy"}})

    return made


@pytest.fixture
def to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let races ask all engines, also once a schedule meets the bound."""
    monkeypatch.setattr("weft.synth.engines.portfolio.race.Race._met", lambda _: False)
    monkeypatch.setattr("weft.synth.engines.portfolio.engine.likely", lambda *_: iter(("classic",)))


def blamed(ran: Ran, text: str, code: int = 70) -> None:
    """The command ended with this error, which is not called a bug of weft."""
    assert ran.code == code, ran.err
    assert text in ran.err
    assert "bug in" not in ran.err
    assert "Traceback" not in ran.err


def report(ran: Ran) -> str:
    """The text of the report that an error names; the file is removed."""
    found = re.search(r"the traceback is in (\S+)", ran.err)
    assert found, ran.err
    path = Path(found[1])
    text = path.read_text()
    path.unlink()
    return text


# --- engines --------------------------------------------------------------------------------------

FAULTS = [
    ("AVAILABILITY", "1 / 0", "failed in availability: ZeroDivisionError: division by zero"),
    ("REFUSES", "raise ValueError('odd')", "failed in refuses: ValueError: odd"),
    ("SOLVE", "import no_such_module", "failed in solve: ModuleNotFoundError: No module named 'no"),
    ("SOLVE", "assert not point", "failed in solve: AssertionError"),
    ("SOLVE", "raise MemoryError", "ran out of memory in solve"),
]


@pytest.mark.parametrize(("place", "line", "text"), FAULTS)
def test_an_engine_that_was_named_ends_the_command(
    toy: Callable[..., None], weft: Weft, place: str, line: str, text: str
) -> None:
    toy(**{place: line})
    ran = weft(*SYNTH, "-e", "toy")
    blamed(ran, f"error: the engine 'toy' of weft-toy 1.0 {text}")
    assert "report this to the authors of weft-toy" in ran.err
    assert "/weft-plugin-fault-" in ran.err
    assert "Traceback" in report(ran)


ODD_REASONS = [
    ("AVAILABILITY", "return True", "returned bool from availability instead of str or None"),
    ("REFUSES", "return ('no',)", "returned tuple from refuses instead of str or None"),
    ("REFUSES", "return 0", "returned int from refuses instead of str or None"),
]


@pytest.mark.parametrize(("place", "line", "text"), ODD_REASONS)
def test_a_reason_that_is_not_a_text(
    toy: Callable[..., None], weft: Weft, place: str, line: str, text: str
) -> None:
    """Also False and 0, which would pass for None, and True, which would pass for a reason."""
    toy(**{place: line})
    ran = weft(*SYNTH, "-e", "toy")
    blamed(ran, f"error: the engine 'toy' of weft-toy 1.0 {text}")
    assert "report this to the authors of weft-toy" in ran.err
    listed = {e["name"]: e for e in weft("list", "engines", "--json").json["engines"]}
    assert listed["toy"]["available"] == (place == "REFUSES")


def test_v_shows_the_traceback(toy: Callable[..., None], weft: Weft) -> None:
    toy(SOLVE="raise KeyError('lost')")
    ran = weft(*SYNTH, "-e", "toy", "-v").ended(70, "Traceback")
    assert "weft_faulty_engine.py" in report(ran)


def test_the_error_is_in_the_object_of_json(toy: Callable[..., None], weft: Weft) -> None:
    toy(SOLVE="raise KeyError('lost')")
    ran = weft(*SYNTH, "-e", "toy", "--json")
    assert ran.json["error"]["message"] == (
        "the engine 'toy' of weft-toy 1.0 failed in solve: KeyError: 'lost'"
    )
    report(ran)


@pytest.mark.usefixtures("to_the_end")
@pytest.mark.parametrize(("place", "line", "text"), [*FAULTS, *ODD_REASONS])
@pytest.mark.parametrize("engine", [(), ("-e", "portfolio{engines=toy+classic}")])
def test_a_race_goes_on_without_it(
    toy: Callable[..., None],
    weft: Weft,
    tmp_path: Path,
    place: str,
    line: str,
    text: str,
    engine: tuple[str, ...],
) -> None:
    toy(**{place: line})
    # A collective for which its engine is asked through a reduction, twice.
    ran = weft(
        "synth", "-t", "ring:3", "-c", "allreduce", *engine, "-o", str(tmp_path / "out")
    ).ended(0)
    assert ran.err.count("warning: the engine 'toy' of weft-toy 1.0 ") == 1
    assert text in ran.err
    assert "left out of the race" in ran.err
    assert ("(-v shows the traceback)" in ran.err) == ("returned" not in text)
    assert all(read(p).provenance["found_by"] != "toy" for p in (tmp_path / "out").iterdir())


def test_a_race_of_none_but_it_fails_as_it_does(toy: Callable[..., None], weft: Weft) -> None:
    toy(SOLVE="raise KeyError('lost')")
    ran = weft(*SYNTH, "-e", "portfolio{engines=toy}")
    blamed(ran, "error: the engine 'toy' of weft-toy 1.0 failed in solve: KeyError: 'lost'")
    report(ran)


@pytest.mark.usefixtures("to_the_end")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("return None", "returned NoneType from solve instead of Outcome"),
        ("return Outcome(Status.FEASIBLE, [point])", "returned list from solve as its points"),
        ("return Outcome(Status.FEASIBLE, (None,))", "from solve instead of Point"),
        ("point = replace(point, certificate=None)", "from solve instead of Certificate"),
        ("point = replace(point, steps=7)", "gave a wrong answer: its schedule is wrong: it has 1"),
        ("point = replace(point, bound=99)", "below its bound 99"),
        ("point = replace(point, rate='x')", "failed in "),
        ("observer.incumbent(replace(point, steps=7))", "gave a wrong answer"),
    ],
)
def test_a_wrong_answer_is_refused(
    toy: Callable[..., None], weft: Weft, tmp_path: Path, line: str, text: str
) -> None:
    toy(SOLVE=line)
    out = tmp_path / "out.json"
    ran = weft(*SYNTH, "-e", "toy", "-o", str(out))
    blamed(ran, text)
    assert "of weft-toy 1.0" in ran.err
    assert not out.exists()
    assert weft(*SYNTH, "-o", str(out)).ended(0, text).err.count("warning: ") == 1
    assert read(out).provenance["found_by"] != "toy"


@pytest.mark.parametrize(
    "claim",
    [
        "return Outcome(Status.OPTIMAL, (answer(problem, ring=True),))",
        "point = replace(answer(problem, ring=True), step_optimal=True)",
        "observer.incumbent(replace(answer(problem, ring=True), bandwidth_optimal=True)); "
        "return Outcome(Status.OPTIMAL, (answer(problem, ring=True),))",
    ],
)
def test_its_claims_are_not_proofs(
    toy: Callable[..., None], weft: Weft, tmp_path: Path, claim: str
) -> None:
    """A ring where every rank reaches every other, called optimal."""
    toy(SOLVE=claim)
    out = tmp_path / "out.json"
    ran = weft(*SYNTH, "-e", "toy", "--require-optimal", "-o", str(out), "--json").ended(3)
    assert json.loads(ran.out)["status"] == "feasible"
    assert "for its steps" not in weft(*SYNTH, "-e", "toy").out


def test_our_bounds_prove_its_schedules(toy: Callable[..., None], weft: Weft) -> None:
    toy(SOLVE="return Outcome(Status.OPTIMAL, (replace(point, bound=0),))")
    ran = weft(*SYNTH, "-e", "toy", "--require-optimal", "--json").ended(0)
    (found,) = json.loads(ran.out)["points"]
    assert found["bound"] != "0"


def test_a_bound_that_is_too_high_is_replaced(toy: Callable[..., None], weft: Weft) -> None:
    """A false bound below the schedule's own rate cannot be seen by looking at the schedule."""
    toy(SOLVE="point = replace(answer(problem, ring=True), bound=2)")
    found = json.loads(weft(*SYNTH, "-e", "toy", "--json").out)["points"][0]
    plain = json.loads(weft(*SYNTH, "--json").out)["points"][0]
    assert found["bound"] == plain["bound"]


def test_infeasible_is_not_believed(toy: Callable[..., None], weft: Weft) -> None:
    toy(SOLVE="return Outcome(Status.INFEASIBLE)")
    ran = weft(*SYNTH, "-e", "toy").ended(3)
    assert "no schedule obeys the rules" not in ran.err.partition("hint")[0].partition("toy")[0]


@pytest.mark.parametrize("status", ["OPTIMAL", "FEASIBLE"])
def test_schedules_that_are_not_there(toy: Callable[..., None], weft: Weft, status: str) -> None:
    toy(SOLVE=f"return Outcome(Status.{status})")
    blamed(weft(*SYNTH, "-e", "toy"), f"returned {status.lower()} from solve without a schedule")


def test_a_field_without_a_default_keeps_it_out_of_the_default_race(
    toy: Callable[..., None], weft: Weft
) -> None:
    toy(FIELD="size: int")
    raced = weft(*SYNTH)
    assert (raced.code, raced.err.count("warning")) == (0, 0)
    listed = {e["name"]: e for e in weft("list", "engines", "--json").json["engines"]}
    assert listed["toy"]["summary"] == (
        "Every block straight to every rank. Used only where it is named with its options: "
        "toy{size=…}."
    )
    weft(*SYNTH, "-e", "toy").ended(2, "toy needs the option 'size'")
    # Named, it is told before any engine searches, not when its turn comes or never.
    weft(*SYNTH, "-e", "portfolio{engines=classic+toy}").ended(2, "toy needs the option 'size'")
    assert weft(*SYNTH, "-e", "toy{size=3}").code == 0


def test_options_that_cannot_be_read_are_told(toy: Callable[..., None], weft: Weft) -> None:
    toy(FIELD="size: 'Nowhere' = 1")
    weft("list", "engines", "--options").ended(
        0, "warning: the engine 'toy' of weft-toy 1.0 failed in its options: NameError"
    )


def test_its_own_errors_stay_its_own(toy: Callable[..., None], weft: Weft) -> None:
    """What a plug-in raises and catches itself is no fault."""
    toy(
        FIELD="def helper(self): raise ValueError('inner')",
        SOLVE="\n        try: self.helper()\n        except ValueError: pass",
    )
    ran = weft(*SYNTH, "-e", "toy")
    assert (ran.code, ran.err.count("warning")) == (0, 0)


@pytest.mark.usefixtures("to_the_end")
def test_a_package_that_it_lacks_is_missing(toy: Callable[..., None], weft: Weft) -> None:
    toy(SOLVE="raise Missing('no licence')")
    assert weft(*SYNTH, "-e", "toy").code == 4
    weft(*SYNTH).ended(0, "the engine 'toy' of weft-toy 1.0: no licence; left out of the race")


def test_sweep_and_tune_tell_it_once(
    toy: Callable[..., None],
    weft: Weft,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_workers: None,
) -> None:
    """Their searches run in other processes, which find the package by ``PYTHONPATH``."""
    toy(SOLVE="raise KeyError('lost')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site0"), prepend=":")
    common = ("-t", "line:2", "-c", "allgather", "--engine", "toy")
    told = "the engine 'toy' of weft-toy 1.0 failed in solve: KeyError: 'lost'"
    swept = weft("sweep", *common, "--objective", "latency", "--no-cache", "--jobs", "1")
    assert told in swept.out + swept.err
    quick = ("--sizes", "1KiB", "--protocols", "Simple", "--jobs", "1")
    tuned = weft("tune", *common, *quick, "-o", str(tmp_path / "library")).ended(0)
    assert tuned.err.count(told) == 1


# --- loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "import torrrch",
            "ModuleNotFoundError: No module named 'torrrch'",
            "install torrrch, which weft-toy needs",
        ),
        (
            "import weft.synth.gone",
            "No module named 'weft.synth.gone'",
            "weft-toy was written for another version of weft",
        ),
        ("from weft.synth.api import gone", "ImportError: cannot import name 'gone'", "fix or"),
        ("import sys; sys.exit(3)", "SystemExit: 3", "fix or uninstall weft-toy"),
        ("1 / 0", "ZeroDivisionError: division by zero", "fix or uninstall weft-toy"),
        ("def f(:", "SyntaxError", "fix or uninstall weft-toy"),
        ("x = 1", "is not at weft_faulty_engine:Toy", "reinstall weft-toy"),
        ("def Toy(): pass", "leads to a function, where a class is needed", "fix or"),
        (
            "class Toy: name = 'toy'",
            "lacks cites, availability, refuses, solve",
            "fix or uninstall weft-toy",
        ),
        (
            "class Toy:\n name = 'exact'; cites = ''\n"
            " def availability(): pass\n def refuses(): pass\n def solve(): pass\n",
            "calls itself 'exact'",
            "must have one name",
        ),
    ],
)
def test_an_engine_that_cannot_be_loaded(
    install: Toys, weft: Weft, text: str, message: str, hint: str
) -> None:
    install({"weft_faulty_engine": text}, {"weft.engines": {"toy": "weft_faulty_engine:Toy"}})
    ran = weft(*SYNTH, "-e", "toy")
    blamed(ran, message, code=4)
    assert "the engine 'toy' of weft-toy 1.0" in ran.err
    assert hint in ran.err
    assert weft(*SYNTH).ended(0).err.count("warning: the engine 'toy' of weft-toy 1.0") == 1
    listed = {e["name"]: e for e in weft("list", "engines", "--json").json["engines"]}
    assert message in listed["toy"]["reason"]
    found = re.search(r"the traceback is in (\S+)", ran.err)
    if found:
        Path(found[1]).unlink()


def test_a_module_that_is_not_there(install: Toys, weft: Weft) -> None:
    install({}, {"weft.engines": {"toy": "weft_not_there.sub:Toy"}})
    ran = weft(*SYNTH, "-e", "toy")
    blamed(ran, "No module named 'weft_not_there'", code=4)
    assert "reinstall weft-toy" in ran.err
    report(ran)


def test_a_slow_import_is_told(
    toy: Callable[..., None], weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "SLOW", 0.0)
    toy()
    ran = weft(*SYNTH, "-e", "toy").ended(0)
    assert re.search(r"warning: the engine 'toy' of weft-toy 1.0 took \d+\.\d CPU s to", ran.err)


def test_a_name_of_ours_stays_ours(install: Toys, weft: Weft, tmp_path: Path) -> None:
    install(
        {"weft_faulty_engine": "class Toy: pass"},
        {"weft.engines": {"exact": "weft_faulty_engine:Toy"}},
    )
    weft(*SYNTH, "-e", "exact").ended(
        0,
        "warning: the engine 'exact' of weft-toy 1.0 is not used: weft has an engine of that name",
    )
    assert weft("list", "engines").code == 0


def test_two_packages_with_one_name_are_both_named(install: Toys, weft: Weft) -> None:
    install({}, {"weft.engines": {"toy": "weft_one:Toy"}})
    install({}, {"weft.engines": {"toy": "weft_other:Toy"}}, package="weft-other")
    ran = weft(*SYNTH, "-e", "toy")
    blamed(ran, "several packages provide the engine 'toy': weft-toy (weft_one:Toy), ", code=2)
    assert "weft-other (weft_other:Toy)" in ran.err
    weft(*SYNTH).ended(0, "provide the engine 'toy'")


def test_doctor_lists_the_plugins(install: Toys, weft: Weft) -> None:
    install(
        {"weft_faulty_engine": "1 / 0", "weft_good_pass": "class P:\n name = 'good'\n apply = 1\n"},
        {
            "weft.engines": {"toy": "weft_faulty_engine:Toy"},
            "weft.passes": {"good": "weft_good_pass:P"},
            "weft.verbs": {"check": "weft_good_pass"},
        },
    )
    found = {c["name"]: c for c in weft("doctor", "--json").ended(0).json["checks"]}
    assert not found["engine toy"]["ok"]
    assert "ZeroDivisionError" in found["engine toy"]["detail"]
    assert found["pass good"] == {
        "name": "pass good",
        "ok": True,
        "detail": "of weft-toy 1.0",
        "needed": False,
    }
    assert found["verb check"]["detail"] == (
        "the verb 'check' of weft-toy 1.0 is not used: weft has a verb of that name"
    )


# --- passes, formats, importers, verbs ------------------------------------------------------------

PASS = """
from __future__ import annotations
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar
if TYPE_CHECKING:
    from weft.dsl.nouns.library import Library
from weft.dsl.nouns.program import Program

@dataclass(frozen=True)
class Odd:
    "Fails."
    name: ClassVar[str] = "odd"
    def apply(self, program: NOUN, target) -> Program:
        DOES
"""


@pytest.mark.parametrize(
    ("noun", "does", "text"),
    [
        ("Program", "raise KeyError('x')", "failed in apply: KeyError: 'x'"),
        ("Program", "return None", "returned NoneType from apply instead of Program"),
        ("Library", "return program", "failed in the annotations of apply: NameError: name 'Libra"),
    ],
)
def test_a_pass(install: Toys, weft: Weft, triangle: Path, noun: str, does: str, text: str) -> None:
    source = PASS.replace("NOUN", noun).replace("DOES", does)
    install({"weft_faulty_pass": source}, {"weft.passes": {"odd": "weft_faulty_pass:Odd"}})
    ran = weft("compile", str(triangle), "-p", "odd", "-o", "-")
    blamed(ran, f"the pass 'odd' of weft-toy 1.0 {text}")
    report(ran) if "returned" not in text else None
    assert weft("list", "passes").code == 0


def test_a_pass_that_gives_a_wrong_program_is_named(
    install: Toys, weft: Weft, triangle: Path
) -> None:
    source = PASS.replace("NOUN", "Program").replace(
        "DOES",
        "return program.with_ranks((*program.ranks[:-1], replace(program.ranks[-1], blocks=())))",
    )
    install({"weft_faulty_pass": source}, {"weft.passes": {"odd": "weft_faulty_pass:Odd"}})
    weft("compile", str(triangle), "-p", "odd", "-o", "-").ended(
        1, "after the pass 'odd' of weft-toy 1.0"
    )


FORMAT = """
import json
from weft.backends.formats.format import ProgramFormat
from weft.dsl.nouns.program import dump, load

class Line(ProgramFormat):
    name = "line"
    def recognizes(self, text, data):
        RECOGNIZES
    def read(self, text, where):
        READ
    def emit(self, program, target, sizes):
        EMIT
"""

RIGHT_FORMAT = {
    "RECOGNIZES": "return text.startswith('LINE ')",
    "READ": "return load(json.loads(text[5:]), where)",
    "EMIT": "return 'LINE ' + json.dumps(dump(program))",
}


def line(install: Toys, **lines: str) -> None:
    """Install the format ``line``, with some lines replaced."""
    text = FORMAT
    for place, one in {**RIGHT_FORMAT, **lines}.items():
        text = text.replace(place, one)
    install({"weft_faulty_format": text}, {"weft.backends": {"line": "weft_faulty_format:Line"}})


@pytest.mark.parametrize(
    ("emit", "text"),
    [("1 / 0", "failed in emit: ZeroDivisionError"), ("return 3", "returned int from emit")],
)
def test_a_format_that_cannot_write(
    install: Toys, weft: Weft, triangle: Path, emit: str, text: str
) -> None:
    line(install, EMIT=emit)
    blamed(
        weft("compile", str(triangle), "--to", "line", "-o", "-"),
        f"the backend 'line' of weft-toy 1.0 {text}",
    )


@pytest.mark.parametrize(
    ("emit", "text"),
    [
        ("return 'LINE {}'", "emitted a wrong file: "),
        (
            "return 'LINE ' + json.dumps(dump(program)).replace('\"r\"', '\"s\"', 1)",
            "emitted a wrong file: ",
        ),
    ],
)
def test_a_format_that_writes_wrong_files(
    install: Toys, weft: Weft, triangle: Path, tmp_path: Path, emit: str, text: str
) -> None:
    line(install, EMIT=emit)
    out = tmp_path / "out"
    ran = weft("compile", str(triangle), "--to", "line", "-o", str(out))
    blamed(ran, f"error: the backend 'line' of weft-toy 1.0 {text}")
    assert "--> " in ran.err
    assert "report this to the authors of weft-toy" in ran.err
    assert not out.exists()


@pytest.mark.parametrize("method", ["recognizes", "read"])
def test_a_format_that_lacks_a_method(
    install: Toys, weft: Weft, triangle: Path, tmp_path: Path, method: str
) -> None:
    """It could write what nobody reads; so it is refused before, by every verb, for one reason."""
    text = FORMAT.replace(f"def {method}(", f"def {method}_not(")
    for place, one in RIGHT_FORMAT.items():
        text = text.replace(place, one)
    install({"weft_faulty_format": text}, {"weft.backends": {"line": "weft_faulty_format:Line"}})
    told = "cannot be loaded: TypeError: Line lacks" if method == "recognizes" else "lacks"
    lacks = f"the backend 'line' of weft-toy 1.0 {told} {method}"
    blamed(weft("compile", str(triangle), "--to", "line", "-o", "-"), lacks, code=4)
    file = tmp_path / "file.line"
    file.write_text("LINE {}")
    weft("check", str(file)).ended(2, f"warning: {lacks}; the format 'line' is passed over")
    listed = {e["name"]: e for e in weft("list", "backends", "--json").json["backends"]}
    assert listed["line"]["reason"] == f"{lacks}; fix or uninstall weft-toy"


@pytest.mark.parametrize("verb", ["check", "run", "show", "simulate", "diff", "compile"])
@pytest.mark.parametrize(
    ("read", "text"),
    [("1 / 0", "failed in read: ZeroDivisionError"), ("return 3", "returned int from read")],
)
def test_a_format_that_cannot_read(
    install: Toys, weft: Weft, tmp_path: Path, verb: str, read: str, text: str
) -> None:
    line(install, READ=read)
    file = tmp_path / "file.line"
    file.write_text("LINE {}")
    words = {"simulate": ("-t", "ring:3"), "diff": (str(file),), "compile": ("-o", "-")}
    blamed(
        weft(verb, str(file), *words.get(verb, ())), f"the backend 'line' of weft-toy 1.0 {text}"
    )


def test_a_format_that_cannot_recognize_is_passed_over(
    install: Toys, weft: Weft, tmp_path: Path
) -> None:
    line(install, RECOGNIZES="1 / 0")
    file = tmp_path / "file.line"
    file.write_text("LINE {}")
    ran = weft("check", str(file)).ended(2)
    assert (
        ran.err.count(
            "warning: the backend 'line' of weft-toy 1.0 failed in recognizes: ZeroDivisionError"
        )
        == 1
    )


IMPORTER = """
class Row:
    def recognizes(self, text):
        RECOGNIZES
    def read(self, text, where, options):
        READ
"""


@pytest.mark.parametrize(
    ("recognizes", "read", "code", "text"),
    [
        ("return text.startswith('row')", "1 / 0", 70, "failed in read: ZeroDivisionError"),
        ("return text.startswith('row')", "return 1", 70, "returned int from read instead of To"),
        ("1 / 0", "pass", 2, "failed in recognizes: ZeroDivisionError: division by zero; it is "),
    ],
)
def test_an_importer(
    install: Toys, weft: Weft, tmp_path: Path, recognizes: str, read: str, code: int, text: str
) -> None:
    source = IMPORTER.replace("RECOGNIZES", recognizes).replace("READ", read)
    install({"weft_odd_importer": source}, {"weft.importers": {"row": "weft_odd_importer:Row"}})
    file = tmp_path / "four.row"
    file.write_text("row 4")
    blamed(weft("topo", "show", str(file)), f"the importer 'row' of weft-toy 1.0 {text}", code=code)


def test_an_importer_that_cannot_be_loaded_is_passed_over(
    install: Toys, weft: Weft, tmp_path: Path
) -> None:
    install({"weft_odd_importer": "1 / 0"}, {"weft.importers": {"row": "weft_odd_importer:R"}})
    file = tmp_path / "four.row"
    file.write_text("row 4")
    weft("topo", "show", str(file)).ended(
        2, "the format is not known", "the importer 'row' of weft-toy 1.0 cannot be loaded"
    )


VERB = """
EXAMPLES = "weft odd"
def configure(parser):
    CONFIGURE
def run(args, console):
    RUN
"""


@pytest.mark.parametrize(
    ("configure", "run", "text"),
    [
        ("parser.add_argument('-v')", "return 0", "failed in configure: ArgumentError"),
        ("pass", "return args.nothing", "failed in run: AttributeError"),
        ("pass", "import sys; sys.exit(0)", "failed in run: SystemExit: 0"),
        ("pass", "pass", "returned NoneType from run instead of int"),
    ],
)
def test_a_verb(install: Toys, weft: Weft, configure: str, run: str, text: str) -> None:
    source = VERB.replace("CONFIGURE", configure).replace("RUN", run)
    install({"weft_faulty_verb": source}, {"weft.verbs": {"odd": "weft_faulty_verb"}})
    blamed(weft("odd"), f"the verb 'odd' of weft-toy 1.0 {text}")


def test_examples_that_are_not_a_text(install: Toys, weft: Weft) -> None:
    source = VERB.replace('"weft odd"', "()").replace("CONFIGURE", "pass").replace("RUN", "pass")
    install({"weft_faulty_verb": source}, {"weft.verbs": {"odd": "weft_faulty_verb"}})
    blamed(weft("help", "odd"), "returned tuple from EXAMPLES instead of str")


def test_a_verb_with_a_name_of_ours_leaves_the_others_alone(install: Toys, weft: Weft) -> None:
    source = VERB.replace("CONFIGURE", "pass").replace("RUN", "return 0")
    verbs = {"odd": "weft_faulty_verb", "synth": "weft_faulty_verb"}
    install({"weft_faulty_verb": source}, {"weft.verbs": verbs})
    assert weft("odd").code == 0
    assert "unknown verb" in weft("nosuch").err


@pytest.mark.parametrize("words", [(), ("help",), ("--help",)])
def test_help_lists_verbs_of_others(install: Toys, weft: Weft, words: tuple[str, ...]) -> None:
    """Without loading them."""
    install({"weft_faulty_verb": "1 / 0"}, {"weft.verbs": {"odd": "weft_faulty_verb"}})
    ran = weft(*words)
    assert re.search(r"^ +odd +of weft-toy 1\.0$", ran.out + ran.err, re.MULTILINE)


def test_a_verb_that_cannot_be_loaded(install: Toys, weft: Weft) -> None:
    install({"weft_faulty_verb": "1 / 0"}, {"weft.verbs": {"odd": "weft_faulty_verb"}})
    blamed(weft("odd"), "the verb 'odd' of weft-toy 1.0 cannot be loaded", code=4)
