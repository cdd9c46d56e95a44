"""Process in which jobs run, one after the other; it ends with its parent."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from typing import Any

from weft.dsl.base.answering import Say, serve
from weft.dsl.base.plugins import PluginWarning, warnings_to

from .fingerprint import fingerprint
from .job import LIMITS, Ending, Job, JobResult, of_error


def main() -> None:
    """Run jobs: read requests ``{function, text}`` from stdin, write ``{ending, …}`` to stdout."""
    gc.freeze()  # what was imported stays
    gc.set_threshold(LIMITS.young_objects, *gc.get_threshold()[1:])
    serve({"fingerprint": fingerprint(), "pid": os.getpid()}, _answer)


def _answer(request: Any, say: Say) -> None:
    start = time.monotonic()
    heard: list[PluginWarning] = []
    with warnings_to(heard.append):
        try:
            answer = JobResult(Ending.DONE, Job(request["function"], request["text"]).run())
        except BaseException as error:
            answer = of_error(error)
    spent = time.monotonic() - start
    remarks = tuple(dict.fromkeys((one.text, one.trace) for one in heard))
    answer = replace(answer, seconds=spent, remarks=remarks)
    try:
        say(answer.to_json())
    except (TypeError, ValueError) as error:  # the value returned is not JSON
        wrong = of_error(error)
        say(replace(answer, ending=wrong.ending, value=None, fault=wrong.fault).to_json())
