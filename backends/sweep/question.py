"""Jobs of a sweep as values, and the keys of their answers."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import format_spec, options_of, text_of
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology

from ..jobs.fingerprint import source_of
from ..jobs.job import canonical, digest


@dataclass(frozen=True, slots=True)
class Label:
    """Label of a job: its parameters as the texts that were given.

    ``more`` are settings that only a few have: roots and groups.
    """

    topology: str
    collective: str
    sketch: str
    engine: str
    bytes: int | None
    objective: str
    seed: int
    more: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the label as keys of a row."""
        return {key: value for key, value in asdict(self).items() if key != "more" or value}

    def stem(self) -> str:
        """Return a file name without characters that file systems refuse; not unique."""
        size = "" if self.bytes is None else f"{self.bytes}B"
        parts = (self.topology, self.collective, self.more, self.sketch, self.engine, size)
        words = [re.sub(r"[^A-Za-z0-9_.=]+", "-", part).strip("-.") for part in parts if part]
        seed = [f"seed{self.seed}"] if self.seed else []
        return "-".join([*words, *seed])[:100]


@dataclass(frozen=True, slots=True)
class SketchSource:
    """Sketch in weft's own language, and the values of its parameters."""

    name: str
    text: str
    arguments: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SweepQuestion:
    """One job: everything its answer depends on but the code, as canonical JSON.

    Attributes:
        text: machine, collective, sketch, engine with the values of all its options, objective,
            size, seed and threads; but not the budget, which a proved answer does not depend on.
        effort: work of the search; seconds: of CPU, after which it is cut off.
        refused: why the parts do not fit together; then no engine runs.
    """

    label: Label
    ranks: int | None
    text: str
    effort: float
    seconds: float | None = None
    refused: str = ""

    @classmethod
    def of(
        cls,
        label: Label,
        problem: Problem,
        sketch: SketchSource | None,
        engine: str,
        *,
        effort: float,
        seconds: float | None,
        threads: int,
    ) -> SweepQuestion:
        """Return the question that a problem poses to an engine; ``sketch`` is the source of its
        rules.

        Raises:
            UserError: the engine's text is wrong.
        """
        chosen = ENGINES.make(engine, "--engine")
        options = {k: text_of(getattr(chosen, f.name)) for k, f in options_of(type(chosen)).items()}
        home = type(chosen).__module__
        return cls(
            label,
            problem.topology.ranks,
            canonical(
                {
                    "topology": problem.topology.to_json(),
                    "collective": problem.collective.to_json(),
                    "sketch": None if sketch is None else asdict(sketch),
                    "engine": format_spec(chosen),
                    "options": options,
                    "source": None if home.startswith("weft.") else source_of(home),
                    "objective": str(problem.objective),
                    "bytes": problem.bytes,
                    "seed": label.seed,
                    "threads": threads,
                }
            ),
            effort,
            seconds,
        )

    @classmethod
    def none(cls, label: Label, ranks: int | None, effort: float, refused: str) -> SweepQuestion:
        """Return the question of an invalid combination, with the reason."""
        return cls(label, ranks, canonical(label.to_json()), effort, refused=refused)

    def argument(self) -> dict[str, Any]:
        """Return the argument of the job's function."""
        return {**json.loads(self.text), "effort": self.effort, "seconds": self.seconds}

    def core(self, code: str) -> str:
        """Return the key of answers that hold for any budget; ``code`` is the fingerprint."""
        return digest({"question": self.text, "code": code})

    def key(self, code: str) -> str:
        """Return the key of the job: that of its answer within its budget."""
        return digest({"core": self.core(code), "effort": self.effort, "seconds": self.seconds})


def problem_of(data: dict[str, Any]) -> Problem:
    """Return the problem in a job's argument.

    Raises:
        UserError: it makes no sense.
    """
    topology = Topology.from_json(data["topology"])
    collective = Collective.from_json(data["collective"])
    sketch = None
    if data["sketch"] is not None:
        from weft.dsl.language.elaborate import elaborate
        from weft.dsl.language.parse import parse

        given = data["sketch"]
        sketch = elaborate(parse(given["text"], given["name"]), topology, dict(given["arguments"]))
    return Problem(topology, collective, sketch, Objective(data["objective"]), data["bytes"])
