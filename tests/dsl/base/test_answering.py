"""A process that answers is never waited for blindly: stopped, hanging or deaf, it is given up."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from weft.dsl.base.answering import AnsweringProcess, Lost, never

CODE = """
import os, time
from weft.dsl.base.answering import serve

def answer(question, say):
    if question == "sleep":
        time.sleep(10**6)
    while question == "work":
        pass
    say(question)

serve(os.getpid(), answer)
"""

LARGE = "x" * (1 << 20)
"""More than a pipe holds: a process that is stopped leaves the question half sent."""


@pytest.fixture
def process() -> Iterator[AnsweringProcess]:
    made = AnsweringProcess(CODE, idle=30)
    assert made.ready()
    yield made
    made.kill()


def stop(process: AnsweringProcess) -> None:
    """Stop it, and wait until all of its threads are: a signal takes effect some time later."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def after(polls: int) -> Callable[[], bool]:
    """A request to stop that is made at a poll."""
    left = iter(range(polls))
    return lambda: next(left, None) is None


def test_questions_of_any_length_are_answered(process: AnsweringProcess) -> None:
    for question in ("", LARGE, "again"):
        assert process.send(question)
        assert process.listen(None, never) == question


def test_a_stopped_process_is_given_up_while_it_is_heard(process: AnsweringProcess) -> None:
    assert process.send("work")
    stop(process)
    with pytest.raises(Lost, match="stopped"):
        process.listen(None, never)


def test_a_stopped_process_is_given_up_while_it_is_asked(process: AnsweringProcess) -> None:
    stop(process)
    with pytest.raises(Lost, match="stopped"):
        process.send(LARGE)


def test_a_process_that_is_continued_soon_answers(process: AnsweringProcess) -> None:
    assert process.send("work")
    stop(process)
    assert process.listen(None, after(10)) is None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    assert process.listen(None, after(20)) is None


def test_a_question_that_is_not_wanted_any_more_is_not_sent(process: AnsweringProcess) -> None:
    stop(process)
    assert not process.send(LARGE, stopped=after(3))


def test_a_process_that_sleeps_and_does_nothing_is_given_up(process: AnsweringProcess) -> None:
    assert process.send("sleep")
    with pytest.raises(Lost, match="hung"):
        process.listen(None, never)


def test_a_process_that_works_is_not_given_up(process: AnsweringProcess) -> None:
    assert process.send("work")
    assert process.listen(None, after(50)) is None


def test_a_process_that_dies_while_it_is_asked_is_lost(process: AnsweringProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert process.send(LARGE)
    with pytest.raises(Lost, match="SIGKILL"):
        process.listen(None, never)
