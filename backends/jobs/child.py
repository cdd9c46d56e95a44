"""Process in which jobs run, one after the other; it ends with its parent."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from typing import Any

from weft.dsl.base.answering import Say, serve
from weft.dsl.base.plugins import PluginWarning, warnings_to

from .answer import Ending, JobResult, of_error
from .fingerprint import fingerprint
from .job import Job

CODE = "from weft.backends.jobs.child import main; main()"


YOUNG = 50_000
"""Threshold of Python's cyclic garbage collector, which is 700 otherwise: jobs make many small
objects without cycles, and it took about a fifth of the time in which tune explores."""


def main() -> None:
    """Run jobs: read requests ``{function, text}`` from stdin, write ``{ending, …}`` to stdout."""
    gc.freeze()  # what was imported stays
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    serve({"fingerprint": fingerprint(), "pid": os.getpid()}, _answer)


def _answer(request: Any, say: Say) -> None:
    """Run the job of a request and say how it ended."""
    answer = carry_out(Job(request["function"], request["text"]))
    try:
        say(_told(answer))
    except (TypeError, ValueError) as error:  # the value returned is not JSON
        wrong = of_error(error)
        say(_told(replace(answer, ending=wrong.ending, value=None, fault=wrong.fault)))


def _told(answer: JobResult) -> dict[str, Any]:
    return {
        "ending": answer.ending,
        "value": answer.value,
        "fault": answer.fault,
        "seconds": answer.seconds,
        "remarks": answer.remarks,
    }


def carry_out(job: Job) -> JobResult:
    """Run a job here."""
    start = time.monotonic()
    heard: list[PluginWarning] = []
    with warnings_to(heard.append):
        try:
            answer = JobResult(Ending.DONE, job.run())
        except BaseException as error:
            answer = of_error(error)
    spent = time.monotonic() - start
    remarks = tuple(dict.fromkeys((one.text, one.trace) for one in heard))
    return replace(answer, seconds=spent, remarks=remarks)
