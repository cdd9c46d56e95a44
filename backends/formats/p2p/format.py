"""Point-to-point programs as a backend: one Python file for each runtime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from weft.dsl.base.progress import Telling, silent
from weft.dsl.base.units import SizeRange

from .model import Script

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program

    from ...check import Finding
    from ...execute import Execution
    from ...runtime.target import Target


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """A Python file of sends and receives; each subclass is for a runtime."""

    name: ClassVar[str] = ""

    @classmethod
    def availability(cls) -> str | None:
        """Nothing is needed to write text."""
        return None

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """The file of a program; it is good for all sizes."""
        from .compile import compile_script

        return self.write(compile_script(program, program.name))

    def write(self, script: Script, provenance: Iterable[str] = (), module: str = "") -> str:
        """The file of a script, which will be called ``module`` and ``.py``."""
        from .emit import emit

        return emit(script, self.name, provenance, module)

    def findings(self, text: str, where: str, target: str | None = None) -> Sequence[Finding]:
        """What the checker finds in the file's rounds; no error if they are proved right."""
        from .judge import judge

        return judge(text, where)[1]

    def execute(
        self,
        text: str,
        where: str,
        collective: Collective,
        *,
        interleavings: int = 1,
        seed: int = 0,
        tell: Telling = silent,
    ) -> Execution:
        """Run the file's own code on ranks that are threads, in and out of place.

        The order of messages makes no difference, so ``interleavings`` does not either.
        """
        from .execute import execute

        return execute(text, collective, seed=seed, tell=tell)


class Mpi(ScriptFile):
    """A Python file for mpi4py; NumPy arrays."""

    name: ClassVar[str] = "mpi"


class Torch(ScriptFile):
    """A Python file for torch.distributed; tensors on the host (gloo) or on GPUs (NCCL)."""

    name: ClassVar[str] = "torch"


class CupyNccl(ScriptFile):
    """A Python file for NCCL through CuPy; arrays on GPUs."""

    name: ClassVar[str] = "cupy-nccl"
