"""Time that a process spent on compiling kernels: no search is charged for it."""

from __future__ import annotations

import time

from .lazy_dataclass import dataclass


@dataclass
class CompileTime:
    """CPU seconds that a process spent on compiling kernels."""

    seconds: float = 0.0
    _running: int = 0
    _since: float = 0.0

    @property
    def running(self) -> bool:
        """True while something is compiled; ``seconds`` follow when it is done."""
        return self._running > 0

    def begin(self) -> None:
        """Start to count; kernels that are compiled for a kernel count once."""
        if not self._running:
            self._since = time.thread_time()
        self._running += 1

    def end(self) -> None:
        """Stop to count, in the thread that started."""
        self._running -= 1
        if not self._running:
            self.seconds += time.thread_time() - self._since


COMPILE_TIME = CompileTime()
"""That of this process."""
