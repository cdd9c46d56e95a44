"""The net holds: the list names all there is, normalisation is narrow, every change is seen."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from commands import COMMANDS, Command, needs
from comparing import Accepted, changes, lines, read_accepted, report, shown
from normalising import normalised, skipped
from recording import HERE, Manifest, chosen, list_digest, read_manifest, record
from replay import record_of

from weft.backends.cli.frame.parser import FLAGS, VERBS, build_parser
from weft.dsl.base.errors import UserError
from weft.dsl.base.registry import REGISTRIES

NESTED = [verb for verb, flags in FLAGS.items() if flags.startswith("nested:")]
WORDS = [command.argv for command in COMMANDS]


def values(*flags: str) -> set[str]:
    """What stands behind a flag in any command, without options in braces."""
    found = {b for words in WORDS for a, b in pairwise(words) if a in flags}
    return {name for value in found for name in re.sub(r"\{.*?\}", "", value).split(",")}


def test_names_are_unique_and_a_file_has_one_command() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    made = [path for command in COMMANDS for path in command.paths]
    twice = {path for path in made if made.count(path) > 1}
    assert twice == {"kept", "ag4.xml"}  # a cache, and a file that weft does not overwrite


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_replayed(verb: str) -> None:
    assert any(words[0] == verb for words in WORDS)


@pytest.mark.parametrize("verb", NESTED)
def test_every_verb_of_a_verb_is_replayed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError):
        build_parser().parse_args([verb, "nothing"])
    with pytest.raises(SystemExit):
        build_parser().parse_args([verb, "--help"])
    known = re.search(rf"weft {verb} \[-h\] ([a-z|]+)", capsys.readouterr().out)
    assert known
    assert {words[1] for words in WORDS if words[0] == verb} == set(known[1].split("|"))


def test_every_engine_and_backend_is_named() -> None:
    assert set(REGISTRIES["engines"].names()) <= values("-e", "--engine")
    assert set(REGISTRIES["backends"].names()) <= values("--to")


@pytest.mark.parametrize("kind", ["engines", "backends", "passes", "algorithms"])
def test_every_listing_is_replayed(kind: str) -> None:
    assert any(words[:2] == ("list", kind) for words in WORDS)


def test_every_format_of_show_is_written() -> None:
    assert {"perfetto", "dot", "svg", "html"} <= values("--format")


def test_every_input_is_read() -> None:
    names = {file.name for file in (HERE / "inputs").iterdir()}
    unread = {n for n in names if not any(command.names(f"in/{n}") for command in COMMANDS)}
    assert unread == set()


def test_every_search_has_a_budget_that_no_clock_ends() -> None:
    searching = [w for w in WORDS if w[0] in ("synth", "tune", "resynth") and "-c" in w]
    slips = [c.argv for c in COMMANDS if c.name.startswith("slip-")]
    short = [w for w in searching if w not in slips and "3600s" not in w]
    assert short == []


def test_a_command_comes_after_what_it_needs_and_only_that() -> None:
    made = Command("made", "compile a.json -o out/b.xml")
    read = Command("read", "check out/b.xml")
    near = Command("near", "check out/b.xml2", stdin="c")
    change = Command("change", "sketch fmt in/x", makes=("in/x",))
    look = Command("look", "show in/x:nodes=2")
    assert needs((made, read, near, change, look)) == {
        "made": set(),
        "read": {"made"},
        "near": set(),
        "change": set(),
        "look": {"change"},
    }


def test_what_is_chosen_brings_what_it_needs() -> None:
    names = {command.name for command in chosen("diff-libraries")}
    assert names == {"diff-libraries", "resynth-down", "tune-ring"}
    assert chosen("") == COMMANDS
    assert chosen("nothing-like-this") == ()


VARYING = [
    ("Solved   portfolio in 0.9s: optimal", "Solved   portfolio in #s: optimal"),
    ("Ran      8 jobs in 13.3s", "Ran      8 jobs in #s"),
    ("Tuned    2 plans in 1,012.2s, each", "Tuned    2 plans in #s, each"),
    ('"seconds": 0.125, "value": 0.125', '"seconds": #, "value": 0.125'),
    ("1GiB   240  10,740.218  10,067.030   93.7%   166", None),
    ("Read\n         compiling the loops for this machine: about\nSolved", "Read\nSolved"),
    ("Read\n          21s  allgather: timing 1 of 5\nTuned", "Read\nTuned"),
    ('"key": "0123456789abcdef0123"', '"key": "#"'),
    ("schedules/a-4B-0123456789ab.json", "schedules/a-4B-#.json"),
    ("--> <nothing>/tmp/somewhere/work/in/a.json", "--> <nothing><run>/work/in/a.json"),
]


@pytest.mark.parametrize(("text", "instead"), VARYING)
def test_what_varies_is_left_out(text: str, instead: str | None) -> None:
    told = normalised(text.encode(), {"run": Path("/tmp/somewhere")}).decode()
    assert told == (instead or text.replace("166", "#"))


FIXED = """\
Read     ring:4: 4 ranks, 1 host, 8 links; allgather on 4 ranks, 4 chunks
Solved   exact{max-chunks=2} in 0.4s: 7 of 9
Timed    2,875.627 µs at 256MiB in 3 pieces, 1.5s more than 20%
steps  rounds  chunks  rounds/chunk  bound  optimal  algbw GB/s  α µs
    2       3       2           3/2    3/2  steps       66.67   1.4
1GiB     71.2  10,067.030   93.7%   166
stopped in 5s, key 3, code 8, seconds 7
{"us": 1.25, "second": 3, "seconds_per_byte": "1/9", "digest": "0123456789abcdef01"}
{"code": 12, "key": "ab12", "budget_s": 300.0, "seed": 4, "weft": "0.1.0"}
"""


def test_a_changed_digit_is_seen_wherever_no_rule_speaks() -> None:
    before = normalised(FIXED.encode(), {})
    spared = FIXED.index("0.4s: 7")
    for at, letter in enumerate(FIXED):
        if letter.isdigit() and at not in (spared, spared + 2):
            other = FIXED[:at] + str((int(letter) + 1) % 10) + FIXED[at + 1 :]
            assert normalised(other.encode(), {}) != before, FIXED[max(0, at - 20) : at + 9]


def test_bytes_that_are_no_text_are_taken_as_they_are() -> None:
    data = b'\0"seconds": 12'
    assert normalised(data, {}) == data
    assert normalised(b"\xff 12", {}, words=True) == b"\xff 12"
    assert normalised(b"x  -1.5 y2", {}, words=True) == b"x # y#"


def test_little_is_skipped() -> None:
    assert skipped("swept/journal.jsonl")
    assert skipped("kept/ab/cd.json")
    assert not skipped("swept/sweep.json")
    assert not skipped("journal.jsonl")


WEFT = """
import json, pathlib, sys, time
out = pathlib.Path("out")
match sys.argv[1:]:
    case ["write", "-o", name]:
        pathlib.Path(name).mkdir()
        (pathlib.Path(name) / "a.json").write_text('{"steps": 3, "seconds": %f}' % time.time())
        (pathlib.Path(name) / "b.bin").write_bytes(bytes(range(256)))
        print("Wrote", pathlib.Path(name).resolve())
    case ["read", name]:
        print(len(pathlib.Path(name).read_bytes()) > 0)
    case ["echo"]:
        sys.stdout.write(sys.stdin.read())
    case ["stray"]:
        pathlib.Path("stray.txt").write_text("1")
    case _:
        print("error: slip", file=sys.stderr)
        sys.exit(2)
"""
FAKE = (
    Command("write", "write -o out"),
    Command("read", "read out/a.json"),
    Command("echo", "echo", stdin="in/ring.py", stdout="echoed.py"),
    Command("stray", "stray"),
    Command("slip", "slip"),
)


def recorded(folder: Path, text: str = WEFT) -> Manifest:
    """What the net records of a weft that is this text."""
    place = folder / "checkout" / "build" / "link" / "weft" / "backends"
    place.mkdir(parents=True)
    for file in (place.parent / "__init__.py", place / "__init__.py"):
        file.write_text("")
    (place / "cli.py").write_text(text)
    return record(folder / "checkout", folder / "results", FAKE, jobs=2)


def told(before: Manifest, after: Manifest) -> list[str]:
    return [str(change) for change in changes(before, after)]


def test_two_runs_of_one_weft_are_the_same(tmp_path: Path) -> None:
    before, after = recorded(tmp_path / "a"), recorded(tmp_path / "b")
    assert told(before, after) == []
    assert set(before["commands"]["write"]["parts"]) == {
        "stdout",
        "stderr",
        "out/a.json",
        "out/b.bin",
    }
    assert before["commands"]["slip"]["exit"] == 2
    assert "stray.txt" in before["commands"]["(rest)"]["parts"]
    kept = tmp_path / "a" / "results" / "parts"
    assert (kept / "slip" / "stderr").read_text() == "error: slip\n"
    assert (kept / "write" / "stdout").read_text() == "Wrote <run>/work/out\n"
    assert (kept / "echo" / "echoed.py").read_bytes() == (HERE / "inputs/ring.py").read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("range(256)", "range(255)", ["write: out/b.bin changed"]),
        ('"steps": 3', '"steps": 4', ["write: out/a.json changed"]),
        ('"b.bin"', '"c.bin"', ["write: out/b.bin is missing", "write: out/c.bin is new"]),
        ("sys.exit(2)", "sys.exit(70)", ["slip: exit 2 -> 70"]),
        ("error: slip", "error: slap", ["slip: stderr changed"]),
        ('write_text("1")', 'write_text("2")', ["(rest): stray.txt changed"]),
        ('"Wrote"', '"wrote"', ["write: stdout changed"]),
    ],
)
def test_every_change_is_seen(tmp_path: Path, old: str, new: str, says: Sequence[str]) -> None:
    before = recorded(tmp_path / "a")
    after = recorded(tmp_path / "b", WEFT.replace(old, new))
    assert told(before, after) == list(says)
    seen = [
        list(shown(c, tmp_path / "a/results", tmp_path / "b/results"))
        for c in changes(before, after)
    ]
    assert all(seen) or "is new" in says[-1] or "exit" in says[0]


def test_what_was_accepted_is_told_apart_and_does_not_fail(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a")
    after = recorded(tmp_path / "b", WEFT.replace("sys.exit(2)", "print(); sys.exit(1)"))
    meant = Accepted("sl*", "abc", "another code", ("exit",))
    idle = Accepted("read", "abc", "nothing")
    found = report(changes(before, after), [meant, idle])
    assert [str(change) for change in found.changed] == ["slip: stdout changed"]
    assert [str(change) for change, _ in found.accepted] == ["slip: exit 2 -> 1"]
    assert list(lines(found, 5)) == [
        "changed   slip: stdout changed",
        "accepted  slip: exit 2 -> 1: another code",
        "idle      accepted change of read (since abc): nothing differs",
        "5 commands: 1 differ, 0 differ as accepted",
    ]


def test_accepted_changes_count_for_bases_before_them_only(tmp_path: Path) -> None:
    assert read_accepted(HERE / "accepted.toml", lambda base: True) is not None
    file = tmp_path / "accepted.toml"
    file.write_text('[[accepted]]\ncommand = "a"\nbase = "old"\nreason = "why"\n')
    assert read_accepted(file, lambda base: base == "old") == [Accepted("a", "old", "why")]
    assert read_accepted(file, lambda base: False) == []


def test_a_record_of_another_list_is_not_used(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    for digest, used in ((list_digest(), True), ("another", False)):
        (tmp_path / "manifest.json").write_text(json.dumps({"list": digest, "commands": {}}))
        assert (read_manifest(tmp_path) is not None) is used


def test_a_record_of_some_commands_lies_beside_the_whole_one(tmp_path: Path) -> None:
    def keep(folder: Path, commands: Sequence[Command]) -> None:
        folder.mkdir(exist_ok=True)
        manifest = {"list": list_digest(), "commands": {c.name: {} for c in commands}}
        (folder / "manifest.json").write_text(json.dumps(manifest))

    few, others = COMMANDS[:2], COMMANDS[2:4]
    whole, part = tmp_path / "abc", tmp_path / "abc-part"
    assert record_of(tmp_path, "abc", few) == (part, False)
    keep(part, few)
    assert record_of(tmp_path, "abc", few) == (part, True)
    assert record_of(tmp_path, "abc", others) == (part, False)
    assert record_of(tmp_path, "abc", COMMANDS) == (whole, False)
    keep(whole, COMMANDS)
    assert record_of(tmp_path, "abc", others) == (whole, True)
    assert record_of(tmp_path, "abc", others, again=True) == (part, False)
    assert record_of(tmp_path, "abc", COMMANDS, again=True) == (whole, False)
