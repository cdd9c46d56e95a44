"""``make bench``: our schedules beside the published times of TE-CCL and TACCL.

The machines are those that TE-CCL's inputs name, with its links and α: no detour through a NIC is
on them that the others had not. Time of ours: a link is busy for bytes/bandwidth, data arrives α
later, α occupies nothing; switches forward and do not copy. (TE-CCL's own times are
whole epochs, TACCL's follow its cost model; neither was run again here.) *Unsplit* is ours without
cutting any unit, as TE-CCL has it.

In each cell of another system stand its time, how many times ours that is (below 1 ours is
slower), its solver's seconds and how many times ours those are; of a range of seconds, the least.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from published_numbers import PUBLISHED, Published, Rival
from rich.console import Console
from rich.table import Table

from weft.dsl.importers.recognized import read_any
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.load import load_sketch
from weft.dsl.machines.spec import parse_spec
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.time.schedule_time import simulate

UNITS = {"GB": 10**9, "MB": 10**6, "KB": 10**3}
_ON = {True: "on", False: "off"}
SKETCHES = Path(__file__).parents[1] / "grade" / "sketches"


@dataclass(frozen=True)
class Answer:
    """Simulated time of a verified schedule in µs, and CPU seconds to find it."""

    us: float
    seconds: float


@dataclass(frozen=True)
class Question:
    """One machine and collective, to be answered at one size."""

    machine: Topology
    collective: str
    sketch: Sketch | None

    @classmethod
    def of(cls, asked: Published) -> Question:
        """Read from an input as TE-CCL takes it."""
        machine = machine_of(asked)
        rules = load_sketch(str(SKETCHES / f"{asked.sketch}.sketch")) if asked.sketch else None
        return cls(machine, asked.collective, elaborate(rules, machine) if rules else None)

    def answer(self, engine: str, size: int, seconds: float) -> Answer:
        """The quickest schedule that an engine finds."""
        started = time.process_time()
        collective = make(self.collective, self.machine.ranks)
        problem = Problem(self.machine, collective, self.sketch, Objective.TIME, size)
        points = synthesize(problem, engine, Budget(seconds)).points
        spent = time.process_time() - started
        return Answer(min(simulate(p.schedule, size).time_us for p in points), spent)

    def bound_us(self, size: int) -> float:
        """What no schedule beats."""
        own = bounds(self.machine, make(self.collective, self.machine.ranks))
        return float(lower_bound_us(own, size))


def machine_of(asked: Published) -> Topology:
    """The machine of TE-CCL's input, with or without its slip."""
    number = {"allgather": 1, "alltoall": 2}[asked.collective]
    text = json.dumps(
        {
            "TopologyParams": {"name": asked.machine, "chassis": asked.chassis},
            "InstanceParams": {"collective": number, "switch_copy": False},
        }
    )
    return read_any(text, "teccl.json", parse_spec(f"x:as_shipped={_ON[asked.shipped]}"))


def title(asked: Published, ranks: int) -> str:
    """The machine and the collective, for the head of a table."""
    slip = ", GPU 0 a switch as in TE-CCL" if asked.shipped else ""
    return f"{asked.collective} on {asked.machine} × {asked.chassis} ({ranks} GPUs{slip})"


def cell(rival: Rival, place: int, ours: Answer) -> str:
    """A rival's time and seconds beside ours."""
    us = rival.times_us[place]
    if us is None:
        return ""
    least = rival.least_s(place)
    seconds = (
        f"{least:,.4g} s" if rival.range_s is None else f"{least:,.4g}–{rival.range_s[1]:,.0f} s"
    )
    return f"{number(us)} {us / ours.us:.3f}x · {seconds} {times(least / max(ours.seconds, 0.01))}x"


def times(ratio: float) -> str:
    """Two digits of it."""
    return f"{float(f'{ratio:.2g}'):,.10g}"


def number(us: float) -> str:
    """With as many digits as the published times have."""
    return f"{us:,.0f}" if us >= 10**4 else f"{us:,.4g}" if us >= 1000 else f"{us:.5g}"


def decimal(size: int) -> str:
    """A size as it is published: 256 KB are 256,000 bytes."""
    return next(f"{size // unit}{name}" for name, unit in UNITS.items() if size >= unit)


@dataclass(frozen=True)
class Line:
    """What we answer at one size: with units cut, without, and the bound."""

    asked: Published
    place: int
    ours: Answer
    whole: Answer
    bound_us: float

    @property
    def size(self) -> str:
        """As it is published."""
        return decimal(self.asked.sizes[self.place])

    def cells(self) -> list[str]:
        """For the table."""
        return [
            self.size,
            number(self.bound_us),
            number(self.ours.us),
            f"{self.ours.seconds:.1f}",
            number(self.whole.us),
            f"{self.whole.seconds:.1f}",
            *(cell(rival, self.place, self.ours) for rival in self.asked.rivals),
        ]

    def losses(self) -> Iterator[str]:
        """Where others are quicker."""
        ours, whole = self.ours, self.whole
        for rival in self.asked.rivals:
            us, least = rival.times_us[self.place], rival.least_s(self.place)
            if us is None:
                continue
            if us < ours.us:
                low = ", whose time is below our bound" if us < self.bound_us else ""
                yield f"{self.size}: ours takes {ours.us / us - 1:.2%} more than {rival.name}{low}"
            if us < whole.us:
                yield f"{self.size}: unsplit takes {whole.us / us - 1:.2%} more than {rival.name}"
            if least < ours.seconds:
                yield f"{self.size}: {ours.seconds:.1f} s to find ours, {least} s for {rival.name}"


def lines(asked: Published, question: Question, seconds: float) -> Iterator[Line]:
    """All sizes, the largest first."""
    full = 8 * asked.chassis if asked.machine == "NDv2" else question.machine.ranks
    for place, size in enumerate(asked.sizes):
        own = size * question.machine.ranks // full  # a chunk stays what it is
        ours = question.answer("portfolio", own, seconds)
        whole = question.answer("sketched{chunks=1}", own, seconds)
        yield Line(asked, place, ours, whole, question.bound_us(own))


def main() -> int:
    """Print a table for each machine and collective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each search of ours")
    parser.add_argument("--only", default="", help="a part of the titles of the tables to make")
    asked = parser.parse_args()
    console = Console(width=200)
    for one in PUBLISHED:
        question = Question.of(one)
        head = title(one, question.machine.ranks)
        if asked.only not in head:
            continue
        question.answer("portfolio", 1 << 10, 1.0)  # kernels are compiled before the clock runs
        names = [f"{r.name}: µs, /ours · s, /ours" for r in one.rivals]
        table = Table(
            "size", "bound µs", "ours µs", "CPU s", "unsplit µs", "CPU s", *names, title=head
        )
        losses: list[str] = []
        for line in lines(one, question, asked.seconds):
            table.add_row(*line.cells())
            console.print(" | ".join(line.cells()), style="dim")
            losses += line.losses()
        console.print(table)
        for loss in losses:
            console.print(f"  {loss}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
