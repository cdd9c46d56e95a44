"""What a program can be turned into, and what can run it, as the registry and the CLI see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from weft.dsl.base.progress import Telling, silent
from weft.dsl.base.units import SizeRange

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.topology import Topology

    from ...check import Finding
    from ...execute import Execution
    from ...runtime.target import Target
    from .read.model import XmlAlgo


class Backend(Protocol):
    """A format of artefacts: it writes one, judges one, and can execute one for a test."""

    name: ClassVar[str]

    @classmethod
    def availability(cls) -> str | None:
        """None if it can be used here, else the reason and what to install; cheap."""
        ...

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """The text of the artefact for messages of these sizes (None: the format's default)."""
        ...

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        """What is wrong with an artefact, told from its text alone."""
        ...

    def execute(
        self,
        text: str,
        where: str,
        collective: Collective,
        *,
        interleavings: int,
        seed: int,
        tell: Telling = silent,
    ) -> Execution:
        """Execute the artefact on real data and compare with the collective."""
        ...


@runtime_checkable
class ForMachine(Protocol):
    """A backend whose artefacts depend on the machine."""

    def on(self, topology: Topology) -> Backend:
        """The backend for a machine."""
        ...

    def assumed(self, ranks: int, machine: str | None = None) -> str | None:
        """What is taken for granted of the machine, as nobody has said it, and how to say it.

        ``machine``: the topology that was given to :meth:`on`, if there is one.
        """
        ...


@dataclass(frozen=True, slots=True)
class MscclXml:
    """MSCCL XML, which microsoft/msccl, RCCL and msccl-executor-nccl read."""

    name: ClassVar[str] = "msccl-xml"
    cites: ClassVar[str] = "Cowan et al., MSCCLang, ASPLOS 2023, arXiv:2201.11840"

    @classmethod
    def availability(cls) -> str | None:
        """Nothing is needed to write text."""
        return None

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """The XML text.

        Raises:
            UserError: the program does not fit the target.
        """
        from .emit import DEFAULT_MAX_BYTES, emit

        low, high = (sizes.low, sizes.high) if sizes else (0, DEFAULT_MAX_BYTES)
        if target.max_bytes_excluded:  # one size needs one byte more
            high = max(high, low + 1)
        return emit(program, target, min_bytes=low, max_bytes=high)

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        """What the program checker finds in the file."""
        from ...check import check_xml

        return check_xml(_read(text, where), target)

    def execute(
        self,
        text: str,
        where: str,
        collective: Collective,
        *,
        interleavings: int,
        seed: int,
        tell: Telling = silent,
    ) -> Execution:
        """Run the file in the interpreter."""
        from ...execute import run_algo

        return run_algo(
            _read(text, where), collective, interleavings=interleavings, seed=seed, tell=tell
        )


@lru_cache(maxsize=1)
def _read(text: str, where: str) -> XmlAlgo:
    """What is in a file; kept, as who judges one often executes it next."""
    from .read import read_msccl_xml

    return read_msccl_xml(text, where)
