"""Kernels: plain Python, or compiled."""

import os
import subprocess
import sys
from pathlib import Path

from weft.dsl.base.jit import watched
from weft.synth.time import queue_kernel


def test_a_marked_function_is_plain_until_its_module_is_compiled() -> None:
    code = (
        "import sys; from weft.synth.time import queue_kernel; from weft.dsl.base.jit import fast;"
        "assert 'numba' not in sys.modules; quick = fast(queue_kernel);"
        "assert hasattr(quick.meld, 'py_func') and not hasattr(queue_kernel.meld, 'py_func');"
        "assert quick.NOW == queue_kernel.NOW and fast(queue_kernel) is quick"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


HEAP = """
from weft.dsl.base.jit import kernel

@kernel
def least(m):
    return m[0] {sign} m[1]
"""

LOOP = """
from weft.dsl.base.jit import compiled, fast, kernel
from heap import least

@kernel
def run(m):
    return least(m) * 2
"""

MAIN = """
import sys
import numpy as np
import loop
from weft.dsl.base.jit import fast
print(fast(loop).run(np.array([5, 3])), loop.run([5, 3]))
"""


def test_machine_code_is_not_kept_when_a_shared_kernel_changes(tmp_path: Path) -> None:
    """The file of the caller is as it was; another one changes, and keeps its time."""
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "main.py").write_text(MAIN)
    found = []
    for sign in ("-", "+", "-"):
        (tmp_path / "heap.py").write_text(HEAP.format(sign=sign))
        os.utime(tmp_path / "heap.py", (1e9, 1e9))
        for cached in tmp_path.glob("__pycache__/heap.*.pyc"):
            cached.unlink()
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        run = subprocess.run(
            [sys.executable, str(tmp_path / "main.py")],
            env={**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(run.stdout.split())
    assert found == [["4", "4"], ["16", "16"], ["4", "4"]]


def test_watched_kernels_call_what_replaces_others() -> None:
    seen: list[int] = []

    def meld(m: list[int], one: int, other: int) -> int:
        seen.append(one)
        return int(queue_kernel.meld(m, one, other))

    own = watched(queue_kernel, meld=meld)
    # Clients of five words at 5, 10 and 15; the first has the others for children.
    m = [0] * 5 + [1, 0, 10, -1, 0] + [7, 0, -1, 15, 0] + [3, 0, -1, -1, 0]
    assert own.without_first(m, 5) == 15
    assert seen == [10]
