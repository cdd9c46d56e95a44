"""Evidence that our files ran: the log of a run, and its times beside two predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import PurePath

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.importers.nccl_log import NcclChoice, NcclLog
from weft.dsl.importers.nccl_tests import NcclTestsRun


@dataclass(frozen=True, slots=True)
class EvidenceEffort:
    """Ratios of times that decide between explanations."""

    # Least, of the predictions of file and of NCCL's own, between which a time decides.
    apart_ratio: float = 1.15
    near_ratio: float = 2.0  # of a time to a prediction that explains it, at most
    stay_ratio: float = 1.03  # to the best, up to which the choice of a smaller size stays


EFFORT = EvidenceEffort()


class Ran(StrEnum):
    """Algorithm that ran at a size, and how sure that is."""

    FILE = "file"
    LIKE_FILE = "file, by its time"
    OWN = "own"
    LIKE_OWN = "own, by its time"
    UNKNOWN = "not shown"


FILES, OWNS = (Ran.FILE, Ran.LIKE_FILE), (Ran.OWN, Ran.LIKE_OWN)


@dataclass(frozen=True, slots=True)
class SizePrediction:
    """Times in µs that are predicted at a size; None where nothing is.

    ``file``: name of the plan's file that is for this size and placement; empty if none is.
    """

    file: str = ""
    file_us: float | None = None
    own_us: float | None = None
    own_how: str = ""


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """A measured time, the predicted one, the program that ran, and the evidence."""

    bytes: int
    in_place: bool
    us: float
    predicted: SizePrediction
    ran: Ran
    why: str
    where: str

    @property
    def error(self) -> float | None:
        """Return predicted ÷ measured - 1 of the program that ran; None where it is not known."""
        told = self.predicted.file_us if self.ran in FILES else None
        told = self.predicted.own_us if self.ran in OWNS else told
        return None if told is None else told / self.us - 1


Predict = Callable[[int, bool], SizePrediction]
"""Function of a message's bytes and whether it is in place."""


def verdicts(run: NcclTestsRun, log: NcclLog, ours: bool, predict: Predict) -> list[SizeVerdict]:
    """Return the program that ran at every size and placement of a run.

    ``log``: of this run; ``ours``: it, or another log of the same settings, says that files of the
    library were read.
    """
    ranks = len(run.hosts)
    found = []
    for row in run.rows:
        for in_place, us in ((False, row.us), (True, row.in_place_us)):
            if us:
                told = predict(row.bytes, in_place)
                mine = [one for one in log.choices if one.kind in (None, run.kind)]
                own = [one for one in mine if one.message_bytes(ranks) == row.bytes]
                ran, why = _judged(us, told, own, log, ours)
                found.append(SizeVerdict(row.bytes, in_place, us, told, ran, why, row.where))
    return found


def _judged(
    us: float, told: SizePrediction, own: Sequence[NcclChoice], log: NcclLog, ours: bool
) -> tuple[Ran, str]:
    named = " and ".join(dict.fromkeys(f"{one.algorithm} {one.protocol}" for one in own))
    if any(one.algorithm == "msccl" for one in own):
        return Ran.FILE, f"the log names {named}"
    if own and (not told.file or not ours):
        return Ran.OWN, f"the log names {named}"
    if not told.file:
        return Ran.OWN, "no file is for this size and placement"
    if own:  # both placements are tested one after the other, and one line does not say which
        ran, why = _by_time(us, told)
        return ran, f"the log names {named} for one placement at least; {why}"
    if log.choices and ours:
        return Ran.FILE, "the log has no line of NCCL's own at this size, and others at others"
    if log.lines and not log.choices and log.by and not ours:
        return Ran.OWN, "other files were read"
    return _by_time(us, told)


def _by_time(us: float, told: SizePrediction) -> tuple[Ran, str]:
    """Return to which of the two predictions a time is nearer, where these differ enough."""
    if told.file_us is None or told.own_us is None:
        return Ran.UNKNOWN, "nothing is predicted of NCCL's own, or of the file"
    file, own = told.file_us / us, told.own_us / us
    words = (
        f"the file should take {told.file_us:.4g} µs (measured {1 / file - 1:+.0%}), NCCL's own "
        f"{told.own_us:.4g} ({1 / own - 1:+.0%})"
    )
    if max(file / own, own / file) < EFFORT.apart_ratio:
        return Ran.UNKNOWN, f"{words}: too alike"
    off, other = abs(math.log(file)), abs(math.log(own))
    if min(off, other) > math.log(EFFORT.near_ratio):
        return Ran.UNKNOWN, f"{words}: near neither"
    return (Ran.LIKE_FILE if off < other else Ran.LIKE_OWN), words


def is_ours(log: NcclLog, files: Iterable[str]) -> bool | None:
    """Return True if a log says that a library's files were read, or files without their names (as
    the executor does), False if others were or none; None without a log."""
    if not log.lines:
        return None
    names = {PurePath(file).name for file in files}
    folders = {PurePath(file).parent.name for file in files}
    if log.read:
        return any(PurePath(one).name in names | folders for one in log.read)
    return bool(log.by)


def _lead_of_files(found: Sequence[SizeVerdict]) -> int:
    """Return at how many more sizes files ran than NCCL's own; a log that shows one decides."""
    if any(one.ran is Ran.FILE for one in found):
        return len(found)
    return sum(one.ran in FILES for one in found) - sum(one.ran in OWNS for one in found)


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The answer for all runs: did the library's files run.

    ``word``: yes, likely, no, unlikely, or not shown; ``why``: in words.
    """

    word: str
    why: str

    @property
    def yes(self) -> bool:
        """Return True if they did, as far as it is shown."""
        return self.word in ("yes", "likely")


def answer(
    runs: Sequence[tuple[str, Sequence[SizeVerdict]]], read: bool | None, refused: Sequence[str]
) -> RunAnswer:
    """Return the answer from the verdicts of all sizes for which there are files.

    ``runs``: with their names. Where the library's files ran in some, the others are those without
    the library, which is measured to compare with: they do not count.
    """
    held = [(name, [one for one in found if one.predicted.file]) for name, found in runs]
    leads = [(name, found, _lead_of_files(found)) for name, found in held if found]
    others = [name for name, _, lead in leads if lead < 0 < max(x for *_, x in leads)]
    theirs = [one for one in leads if not others or one[2] >= 0]
    covered = [one for _, found, _ in theirs for one in found]
    counts = {ran: sum(one.ran is ran for one in covered) for ran in Ran}
    of = f"of {len(covered)} sizes and placements that have a file"
    if others:
        of += f" in {', '.join(dict.fromkeys(name for name, *_ in theirs))}"
        of += f"; NCCL's own in {', '.join(dict.fromkeys(others))}"
    if refused and not counts[Ran.FILE]:
        return RunAnswer("no", refused[0])
    if counts[Ran.FILE]:
        return RunAnswer("yes", f"at {counts[Ran.FILE]} {of}, by the log")
    if covered and counts[Ran.OWN] == len(covered):
        return RunAnswer("no", f"NCCL's own algorithms ran at all {len(covered)}")
    if read is False:
        return RunAnswer("no", "the debug log names no file of the library")
    if not covered:
        return RunAnswer("no", "no size and placement of the runs has a file")
    if counts[Ran.LIKE_FILE] > counts[Ran.LIKE_OWN]:
        return RunAnswer("likely", f"by the time, at {counts[Ran.LIKE_FILE]} {of}")
    if counts[Ran.LIKE_OWN]:
        return RunAnswer("unlikely", f"NCCL's own, by the time, at {counts[Ran.LIKE_OWN]} {of}")
    return RunAnswer(
        "not shown", "run it once more with NCCL_DEBUG=INFO (weft deploy has the line)"
    )
