"""Processes of solvers and those who start them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from until import HANGS, until

from weft.dsl.base.processes import descendants

HARD = """
import pulp
from weft.synth.lp.highs import solve
value = lambda i, j: (i * i * 37 + j * j * 91 + i * j * 13 + i * i * j) % 997 + 1
values = [[value(i, j) for i in range(200)] for j in range(31)]
model = pulp.LpProblem("hard", pulp.LpMaximize)
x = [pulp.LpVariable(f"x{i}", cat="Binary") for i in range(200)]
model += pulp.lpSum(v * y for v, y in zip(values[0], x))
for row in values[1:]:
    model += pulp.lpSum(v * y for v, y in zip(row, x)) <= sum(row) // 2
solve(model, "cbc", steps=10**9)
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_solver_does_not_outlive_its_starter() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", HARD], env=environment)
    until(lambda: len(descendants(parent.pid)) >= 2)  # the child, and CBC that it starts
    found = descendants(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait(HANGS)
    until(lambda: not any(map(runs, found)))
