"""A program on a machine, and what of its simulation depends on neither size nor protocol."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from weft.dsl.base.errors import BadTopology
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.topology import Topology

from .costs import Costs, Rates, Ticks, costs_in_ticks, ticks_of
from .layout import Layout
from .model import Cut, RuntimeModel
from .operations import Operations, operations_of
from .routes import Route, routes_of


class Prepared:
    """Operations, routes and layouts, each made once and only if it is asked for.

    Raises:
        BadTopology: another number of ranks.
    """

    def __init__(self, program: Program, topology: Topology, model: RuntimeModel) -> None:
        ranks = program.rank_count
        if topology.ranks != ranks:
            raise BadTopology(
                f"the program is for {ranks} ranks, and {topology.name} has {topology.ranks}",
                hint="name the process group" if topology.ranks > ranks else "",
            )
        self.program, self.topology, self.model = program, topology, model
        self._programs = {program.protocol: program}
        self._operations: dict[int, Operations] = {}
        self._layouts: dict[int, Layout] = {}
        self._routes: list[Route] | None = None

    def cut(self, message_bytes: int, protocol: Protocol) -> Cut:
        """How a message is cut under a protocol."""
        if protocol not in self._programs:
            self._programs[protocol] = replace(self.program, protocol=protocol)
        return self.model.cut(self._programs[protocol], message_bytes)

    def operations(self, cut: Cut) -> Operations:
        """The operations of a turn; the same for cuts that merge all there is to merge."""
        merge = self._merge(cut)
        if merge not in self._operations:
            self._operations[merge] = operations_of(self.program, merge)
        return self._operations[merge]

    def layout(self, cut: Cut) -> Layout:
        """The columns of these operations."""
        merge = self._merge(cut)
        if merge not in self._layouts:
            operations = self.operations(cut)
            self._layouts[merge] = Layout.of(operations, self.topology, self.routes(operations))
        return self._layouts[merge]

    def routes(self, operations: Operations) -> list[Route]:
        """The route of each connection; these do not depend on what is merged."""
        if self._routes is None:
            self._routes = routes_of(self.topology, operations.connections)
        return self._routes

    def ticks(self, cut: Cut, protocol: Protocol, unit: int = 0) -> Ticks:
        """What a chunk costs; exact, or in a given unit."""
        return ticks_of(self._rates, cut, self.model, protocol, unit)

    def costs(self, cut: Cut, protocol: Protocol) -> Costs:
        """What each operation costs, exactly."""
        operations = self.operations(cut)
        routes = self.routes(operations)
        return costs_in_ticks(operations, self.topology, routes, self.ticks(cut, protocol))

    def _merge(self, cut: Cut) -> int:
        return min(cut.merge, self._most)

    @cached_property
    def _rates(self) -> Rates:
        return Rates.of(self.topology)

    @cached_property
    def _most(self) -> int:
        """The chunks of the longest instruction: more are never merged."""
        return max(1, int(self.program.count.max(initial=1)))
