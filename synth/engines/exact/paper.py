"""SCCL's own encoding in z3, kept to cross-check CP-SAT and to be measured against.

Integers ``time[chunk, rank]`` (the step after which the rank has the chunk), Booleans
``send[chunk, hop]``, integers ``rounds[step]`` (Cai et al., PPoPP'21, §3):

    time = 0 on sources;  time <= S on targets;  received by time S  ⇔  exactly one send into it
    send[c, (u, v)]  ⇒  time[c, u] < time[c, v]
    for every resource and step t:
        #{sends over the resource with time[c, v] = t}  <=  capacity · rounds[t]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.dsl.nouns.schedule import Transfer

from ...base.meter import Meter
from ...solvers import smt
from ...solvers.pool import Listener
from .instance import ExactQuestion, ExactRun, Space
from .realize import Realization, SolverVerdict


def solve(space: Space, question: ExactQuestion, meter: Meter, run: ExactRun) -> Realization:
    """Answer one question with z3.

    The encoding decides, it does not minimise; and it lacks symmetry, fixed sends, and
    limits on peers or hops (the engine refuses sketches with such rules).

    Raises:
        Missing: z3 is not installed.
    """
    if meter.over() or question.fewest:
        return Realization(SolverVerdict.UNKNOWN)
    model = _Paper(space, question)
    listener = Listener(run.observer.cancelled, run.observer.stage)
    answer = smt.solve(model.text, steps=meter.left, seed=run.seed, listener=listener)
    meter.spend(answer.steps)
    if answer.verdict is smt.SmtVerdict.UNSAT:
        return Realization(SolverVerdict.NO)
    if answer.verdict is smt.SmtVerdict.UNKNOWN:
        # Unknown is not a proof: the published tool prints "unsatisfiable" here.
        return Realization(SolverVerdict.UNKNOWN)
    return model.read(answer.values)


class _Paper:
    def __init__(self, space: Space, question: ExactQuestion) -> None:
        self.space, self.question = space, question
        self.lines: list[str] = []
        self.hops_of: dict[int, list[int]] = {}
        self.src, self.dst = space.ends()
        self.lines += [f"(declare-const rounds{t} Int)" for t in range(question.steps)]
        for chunk in range(space.items * question.factor):
            self._travel(chunk)
        self._capacity()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _require(self, rule: str) -> None:
        self.lines.append(f"(assert {rule})")

    def _travel(self, chunk: int) -> None:
        space, steps = self.space, self.question.steps
        item = chunk // self.question.factor
        into: dict[int, list[str]] = {v: [] for v in range(space.topology.ranks)}
        for v in range(space.topology.ranks):
            self.lines.append(f"(declare-const {_time(chunk, v)} Int)")
        self.hops_of[chunk] = np.flatnonzero(space.allowed[item]).tolist()
        for hop in self.hops_of[chunk]:
            u, v = int(self.src[hop]), int(self.dst[hop])
            send = _send(chunk, hop)
            into[v].append(send)
            self.lines.append(f"(declare-const {send} Bool)")
            self._require(f"(=> {send} (< {_time(chunk, u)} {_time(chunk, v)}))")
        for v, sends in into.items():
            when, none = _time(chunk, v), [f"(not {s})" for s in sends]
            if v in space.sources[item]:
                self._require(_all(f"(= {when} 0)", *none))
                continue
            self._require(f"(>= {when} 0)")
            arrives = _all(f"(<= {when} {steps})", _count("pbeq", 1, sends))
            never = _all(f"(= {when} {steps + 1})", *none)
            self._require(arrives if v in space.targets[item] else f"(or {arrives} {never})")

    def _capacity(self) -> None:
        space, question = self.space, self.question
        total = question.rounds
        if total is None:
            return
        names = [f"rounds{t}" for t in range(question.steps)]
        self._require(_all(*(f"(>= {r} 1)" for r in names)))
        self._require(f"(= (+ 0 {' '.join(names)}) {total})")
        for resource, capacity in enumerate(space.capacity.tolist()):
            members = set(np.flatnonzero(space.loads[resource]).tolist())
            keys = [(c, h) for c, hops in self.hops_of.items() for h in hops if h in members]
            for t in range(1, question.steps + 1):
                now = [_all(_send(c, h), f"(= {_time(c, int(self.dst[h]))} {t})") for c, h in keys]
                if not now:
                    continue
                for r in range(1, total - question.steps + 2):
                    most = _count("pble", capacity * r // space.per_chunk, now)
                    self._require(f"(=> (= rounds{t - 1} {r}) {most})")

    def read(self, values: Mapping[str, int]) -> Realization:
        space, factor = self.space, self.question.factor
        transfers = []
        for chunk, hops in self.hops_of.items():
            for hop in hops:
                if values.get(_send(chunk, hop)):
                    h = space.hops.hops[hop]
                    step = values.get(_time(chunk, h.dst), 0) - 1
                    number = space.chunk_of[chunk // factor] * factor + chunk % factor
                    transfers.append(Transfer(number, h.src, h.dst, h.route, step))
        if self.question.rounds is None:
            return Realization(SolverVerdict.YES, tuple(transfers))
        rounds = tuple(values.get(f"rounds{t}", 0) for t in range(self.question.steps))
        return Realization(SolverVerdict.YES, tuple(transfers), rounds)


def _time(chunk: int, rank: int) -> str:
    return f"time_{chunk}_{rank}"


def _send(chunk: int, hop: int) -> str:
    return f"send_{chunk}_{hop}"


def _all(*rules: str) -> str:
    return f"(and true {' '.join(rules)})"


def _count(relation: str, limit: int, rules: Sequence[str]) -> str:
    """Return z3's constraint on the number of rules that hold: ``pbeq`` or ``pble``."""
    if not rules:
        return "true" if relation == "pble" or limit == 0 else "false"
    return f"((_ {relation} {limit}{' 1' * len(rules)}) {' '.join(rules)})"
