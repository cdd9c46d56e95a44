"""One program at many sizes and under many protocols."""

from __future__ import annotations

from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.topology import Topology

from .model import MSCCL, RuntimeModel
from .prepared import Prepared
from .simulate import ProgramSimulation, Runs, simulate_prepared


class ProgramClock:
    """Times a program on a machine; what no size changes is done once.

    All runs are made in the compiled loop, if they can be.

    Raises:
        BadTopology: another number of ranks than the program's.
    """

    def __init__(self, program: Program, topology: Topology, model: RuntimeModel = MSCCL) -> None:
        self._prepared = Prepared(program, topology, model)

    def time_us(self, message_bytes: int, protocol: Protocol | None = None) -> float:
        """When the last block is done, in µs; as :func:`~.simulate.simulate_program`, but quick.

        That is the exact time wherever exact ticks fit 64 bits. Else ticks are the finest power
        of two of a µs that fits: what a chunk holds a link is off by half a tick, and messages
        that are ready at the same instant may be served in another order.

        Raises:
            UserError, BadTopology, CheckFailed: as :func:`~.simulate.simulate_program`.
        """
        protocol = protocol or self._prepared.program.protocol
        cut = self._prepared.cut(message_bytes, protocol)
        try:
            found = Runs(self._prepared, cut, protocol, 0, rounded=True).find(None)
        except CheckFailed as error:
            error.where = f"a message of {format_bytes(message_bytes)}"
            raise
        return float(found.finish.max(initial=0))

    def simulate(
        self,
        message_bytes: int,
        protocol: Protocol | None = None,
        *,
        bound_us: float | None = None,
        most_operations: int | None = None,
    ) -> ProgramSimulation:
        """All that :func:`~.simulate.simulate_program` says, and the same errors."""
        return simulate_prepared(
            self._prepared,
            message_bytes,
            protocol,
            bound_us=bound_us,
            most_operations=most_operations,
            few=0,
        )
