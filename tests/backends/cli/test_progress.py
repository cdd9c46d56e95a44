"""What an observer of an engine tells, and how it stops one."""

import io
import os
import re
import signal
import threading
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from command import Weft

from weft.backends.cli.frame.entry import terminable
from weft.backends.cli.output.console import Console
from weft.backends.cli.output.progress import Progress, describe, watching
from weft.synth.base.engine import Budget


def point() -> Any:
    bound = Fraction(7, 6)
    return SimpleNamespace(steps=3, rounds_per_chunk=Fraction(5, 4), bound=bound, us=None)


def test_a_point_in_words() -> None:
    assert describe(point()) == "3 steps, 5/4 rounds per chunk (bound 7/6, gap 7.1%)"
    timed = SimpleNamespace(**{**vars(point()), "us": 1250.0, "least_us": 1000.0})
    assert describe(timed) == "1,250.000 µs (gap 25.0%), 3 steps"


def test_the_live_line_says_best_bound_and_gap() -> None:
    progress = Progress(Console(quiet=True), Budget(60))
    progress.stage("4 steps")
    assert progress.line() == "Solving  0s  effort 0 of 60  4 steps"
    progress.incumbent(point())
    assert progress.line().endswith("4 steps  [1 found]  best " + describe(point()))
    progress.stop()
    assert "of 60  (stopping)  4 steps" in progress.line()


def test_the_live_line_tells_no_effort_where_nothing_is_searched() -> None:
    progress = Progress(Console(quiet=True), None)
    progress.stage("failure 3 of 9")
    assert progress.line() == "Solving  0s  failure 3 of 9"


def test_the_best_is_not_the_latest() -> None:
    progress = Progress(Console(quiet=True), Budget(60), lambda p: (p.steps,))
    for steps in (5, 3, 8):
        progress.incumbent(SimpleNamespace(**{**vars(point()), "steps": steps}))
    assert "[3 found]  best 3 steps" in progress.line()


def test_the_live_line_is_one_line() -> None:
    from rich.console import Console as RichConsole

    progress = Progress(Console(quiet=True), Budget(60))
    progress.stage("a stage of many words " * 10)
    screen = RichConsole(file=io.StringIO(), width=80, force_terminal=False)
    assert len(screen.render_lines(progress, pad=False)) == 1


def test_a_log_gets_one_line_per_schedule_with_v(capsys: pytest.CaptureFixture[str]) -> None:
    for console, lines in ((Console(), 0), (Console(verbose=1), 1), (Console(True, True, 1), 0)):
        Progress(console, Budget(60)).incumbent(point())
        assert len(capsys.readouterr().err.splitlines()) == lines


def test_a_search_for_a_time_tells_times(weft: Weft) -> None:
    ask = ("-c", "allgather", "-e", "packing", "--objective", "time", "--size", "1MiB")
    ran = weft("synth", "-t", "ring:4", *ask, "-v")
    told = re.findall(r"found ([\d.,]+) µs \(gap ([\d.]+)%\), 2 steps", ran.err)
    assert told, ran.err
    assert f"at 1MiB: {told[-1][0]} µs" in ran.out


def test_points_are_timed_only_where_they_are_shown() -> None:
    def timer(found: Any) -> Any:
        asked.append(found)
        return SimpleNamespace(**{**vars(found), "us": 2.0, "least_us": 1.0})

    for console, times in ((Console(), 0), (Console(verbose=1), 1), (Console(True, True, 1), 0)):
        asked: list[Any] = []
        Progress(console, Budget(60), timer=timer).incumbent(point())
        assert len(asked) == times


def test_ctrl_c_asks_first_and_then_insists() -> None:
    before = signal.getsignal(signal.SIGINT)
    with watching(Console(quiet=True), Budget(60)) as progress:
        assert not progress.cancelled()
        os.kill(os.getpid(), signal.SIGINT)
        assert progress.cancelled()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_kill_is_ctrl_c_while_a_command_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with terminable():
        with watching(Console(quiet=True), Budget(60)) as progress:
            os.kill(os.getpid(), signal.SIGTERM)
            assert progress.cancelled()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_kill_ends_a_command_in_the_background_whose_ctrl_c_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with terminable(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_kill_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with terminable():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_command_in_another_thread_leaves_kill_alone(weft: Weft) -> None:
    before = signal.getsignal(signal.SIGTERM)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(weft("--version").code))
    thread.start()
    thread.join()
    assert codes == [0]
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_are_left_alone() -> None:
    seen = []

    def work() -> None:
        with watching(Console(quiet=True), Budget(1)) as progress:
            seen.append(progress.cancelled())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_terminal_sees_a_line_that_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with watching(Console(), Budget(60)) as progress:
        progress.stage("2 steps")
        progress.incumbent(point())
    text = screen.getvalue()
    assert "Solving" in text
    assert "\x1b[2K" in text  # the line is erased at the end
