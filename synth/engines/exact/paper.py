"""SCCL's own encoding in z3, kept to cross-check CP-SAT and to be measured against.

Integers ``time[chunk, rank]`` (the step after which the rank has the chunk), Booleans
``send[chunk, hop]``, integers ``rounds[step]`` (Cai et al., PPoPP'21, §3):

    time = 0 on sources;  time <= S on targets;  received by time S  ⇔  exactly one send into it
    send[c, (u, v)]  ⇒  time[c, u] < time[c, v]
    for every row and step t:  #{sends over the row with time[c, v] = t}  <=  capacity · rounds[t]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from weft.dsl.base.errors import Missing
from weft.dsl.nouns.schedule import Transfer

from ...base.engine import Budget, Observer
from .effort import EXACT_EFFORT, ExactEffort
from .instance import ExactQuestion, Space
from .realize import Realization, SolverVerdict


def solve(
    space: Space,
    question: ExactQuestion,
    budget: Budget,
    observer: Observer,
    effort: ExactEffort = EXACT_EFFORT,
) -> Realization:
    """Answer one question with z3. ``observer.cancelled`` is only asked before the search.

    The encoding decides, it does not minimise; and it knows no symmetry, no fixed sends, no
    limits on peers or hops (the engine refuses sketches with such rules).

    Raises:
        Missing: z3 is not installed.
    """
    try:
        import z3  # an extra: only cross-checks need it
    except ModuleNotFoundError:
        raise Missing(
            "exact{solver=z3} needs the Python package 'z3-solver'",
            hint="pip install 'weft[z3]', or leave the option out: CP-SAT answers the same",
        ) from None

    if observer.cancelled() or question.fewest:
        return Realization(SolverVerdict.UNKNOWN)
    started = time.monotonic()
    model = _Paper(space, question, z3)
    solver = z3.SolverFor("QF_LIA")
    solver.set("timeout", max(1, int(budget.effort * 1000)))
    solver.set("random_seed", budget.seed)
    solver.add(model.constraints)
    status = solver.check()
    seconds = time.monotonic() - started
    if status == z3.unsat:
        return Realization(SolverVerdict.NO, seconds=seconds)
    if status != z3.sat:
        # Unknown is not a proof: the published tool prints "unsatisfiable" here.
        return Realization(SolverVerdict.UNKNOWN, seconds=seconds)
    return model.read(solver.model(), seconds)


class _Paper:
    """The encoding; ``constraints`` collects it."""

    def __init__(self, space: Space, question: ExactQuestion, z3: Any) -> None:
        self.space, self.question, self.z3 = space, question, z3
        self.constraints: list[Any] = []
        self.time: dict[tuple[int, int], Any] = {}
        self.send: dict[tuple[int, int], Any] = {}
        self.src, self.dst = space.ends()
        self.rounds = [z3.Int(f"rounds{t}") for t in range(question.steps)]
        for chunk in range(space.items * question.factor):
            self._travel(chunk)
        self._capacity()

    def _travel(self, chunk: int) -> None:
        z3, space, steps = self.z3, self.space, self.question.steps
        item = chunk // self.question.factor
        into: dict[int, list[Any]] = {v: [] for v in range(space.topology.ranks)}
        for v in range(space.topology.ranks):
            self.time[chunk, v] = z3.Int(f"time_{chunk}_{v}")
        for hop in np.flatnonzero(space.allowed[item]).tolist():
            u, v = int(self.src[hop]), int(self.dst[hop])
            send = self.send[chunk, hop] = z3.Bool(f"send_{chunk}_{hop}")
            into[v].append(send)
            self.constraints.append(z3.Implies(send, self.time[chunk, u] < self.time[chunk, v]))
        for v, sends in into.items():
            when = self.time[chunk, v]
            if v in space.sources[item]:
                self.constraints += [when == 0, *(z3.Not(s) for s in sends)]
                continue
            self.constraints.append(when >= 0)
            received = z3.PbEq([(s, 1) for s in sends], 1) if sends else z3.BoolVal(False)
            never = z3.And(when == steps + 1, *(z3.Not(s) for s in sends))
            arrives = z3.And(when <= steps, received)
            needed = v in space.targets[item]
            self.constraints.append(arrives if needed else z3.Or(arrives, never))

    def _capacity(self) -> None:
        z3, space, question = self.z3, self.space, self.question
        total = question.rounds
        if total is None:
            return
        self.constraints += [r >= 1 for r in self.rounds]
        self.constraints.append(z3.Sum(self.rounds) == total)
        for row, capacity in enumerate(space.capacity.tolist()):
            members = set(np.flatnonzero(space.loads[row]).tolist())
            sends = [(key, s) for key, s in self.send.items() if key[1] in members]
            for t in range(1, question.steps + 1):
                now = [
                    z3.And(s, self.time[chunk, int(self.dst[hop])] == t)
                    for (chunk, hop), s in sends
                ]
                if not now:
                    continue
                for r in range(1, total - question.steps + 2):
                    self.constraints.append(
                        z3.Implies(
                            self.rounds[t - 1] == r,
                            z3.PbLe([(x, 1) for x in now], capacity * r // space.per_chunk),
                        )
                    )

    def read(self, model: Any, seconds: float) -> Realization:
        """Turn a z3 model into transfers."""
        space, factor = self.space, self.question.factor
        transfers = []
        for (chunk, hop), send in self.send.items():
            if self.z3.is_true(model.eval(send, model_completion=True)):
                h = space.hops.hops[hop]
                step = model.eval(self.time[chunk, h.dst]).as_long() - 1
                number = space.chunk_of[chunk // factor] * factor + chunk % factor
                transfers.append(Transfer(number, h.src, h.dst, h.route, step))
        rounds = tuple(model.eval(r, model_completion=True).as_long() for r in self.rounds)
        if self.question.rounds is None:
            rounds = ()
        return Realization(SolverVerdict.YES, tuple(transfers), rounds, seconds)
