"""Elaboration of a syntax tree to rules on one machine: expand patterns, check names and hops.

All errors of a sketch are collected and reported together. The label of a rule inside loops
includes the values of the loop variables, so that a conflict names the right instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..base.arrays import Bools
from ..base.errors import (
    BadSketch,
    SeveralErrors,
    UnknownName,
    UserError,
    WeftError,
    require_type,
)
from ..base.lazy_dataclass import Frozen
from ..base.registry import ENGINES
from ..base.spec import parse_spec
from ..catalogue import topology
from ..nouns.sketch import (
    CastPolicy,
    Chunks,
    ChunksBySize,
    FixedSend,
    Forbid,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Only,
    OwnFirst,
    Pair,
    Peers,
    Phases,
    Relay,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)
from ..nouns.topology import Topology
from . import ast
from .evaluate import Meaning, PairScope, number_of
from .format import text_of
from .machine import SketchMachine
from .moves import image_of, phases_of
from .parse import MAX_ERRORS, raise_all

WHAT_SWITCHES_DO = "the machine says what its switches do: nvls=on, sharp=fabric, --capable"

_PEERS = {
    ast.SwitchWord.FEW: Peers.FEW,
    ast.SwitchWord.MANY: Peers.MANY,
    ast.SwitchWord.AT_MOST: None,
}
_ALLOWED: dict[ast.SwitchWord, frozenset[str]] = {
    ast.SwitchWord.REDUCE: frozenset({"reduces"}),
    ast.SwitchWord.MULTICAST: frozenset({"multicast"}),
    ast.SwitchWord.OFF: frozenset(),
}

MAX_TURNS = 20_000
"""Largest total number of loop iterations."""


def elaborate(
    tree: ast.SketchTree, topology: Topology, arguments: Mapping[str, int] | None = None
) -> Sketch:
    """Return the rules of a sketch on a topology; ``arguments`` are values of its parameters.

    A parameter without a value takes the machine's number if it is called ``ranks``, ``nodes`` or
    ``gpus`` (per node), and its default otherwise.

    Raises:
        BadSketch: a pair that is not a hop, an unknown rank, a symmetry that the machine does not
            have, a relay that leaves no node, too many loop iterations.
        UnknownName: an unknown node, variable or parameter; the nearest is suggested.
        SeveralErrors: several of them.
    """
    hint = "weft.load_sketch(NAME) or weft.parse_sketch(TEXT)"
    require_type(tree, ast.SketchTree, "sketch", hint)
    require_type(topology, Topology, "topology", 'weft.topology("dgx1")')
    return trace(tree, topology, arguments).sketch


class Written(Frozen):
    """A line of the sketch with the context of its block and the resulting rules."""

    line: ast.Rule
    meaning: Meaning
    rules: tuple[Rule, ...]


class Elaboration(Frozen):
    """A sketch with the origin of its rules, for ``lint``."""

    sketch: Sketch
    machine: SketchMachine
    written: tuple[Written, ...]
    idle_loops: tuple[ast.Loop, ...]


def trace(
    tree: ast.SketchTree, topology: Topology, arguments: Mapping[str, int] | None = None
) -> Elaboration:
    """Return the sketch of :func:`elaborate` with the rules of each line."""
    machine = SketchMachine(topology)
    numbers = parameters_of(tree, arguments or {}, machine.numbers)
    work = _Elaborator()
    for one in tree.statements:
        if not isinstance(one, ast.Header):
            work.statement(one, Meaning(machine, numbers), ())
    engine = ""
    try:
        engine = _engine(tree)
    except UserError as problem:
        work.note(problem)
    raise_all(work.problems)
    written = tuple(_with_free_rest(machine, work.written))
    size = next(((s.low, s.high) for s in tree.statements if isinstance(s, ast.SizeLine)), None)
    rules = tuple(rule for one in written for rule in one.rules)
    sketch = Sketch(
        tree.name, rules, _machine_text(tree, numbers), _collective(tree, rules), size, engine
    )
    idle = tuple(head for head, turned in work.loops.values() if not turned)
    return Elaboration(sketch, machine, written, idle)


def machine_text(tree: ast.SketchTree, arguments: Mapping[str, int] | None = None) -> str:
    """Return the catalogue text of the machine that a sketch names, empty if none.

    Raises:
        BadSketch: a parameter has neither a value nor a default.
    """
    return _machine_text(tree, parameters_of(tree, arguments or {}, {}))


def machine_of(tree: ast.SketchTree, arguments: Mapping[str, int] | None = None) -> Topology | None:
    """Return the machine that a sketch names, or None.

    Raises:
        As :func:`weft.dsl.catalogue.topology` and :func:`machine_text`, at the line of the machine.
    """
    text = machine_text(tree, arguments)
    try:
        return topology(text) if text else None
    except UserError as error:
        line = next(s for s in tree.statements if isinstance(s, ast.MachineLine))
        error.where = line.span
        raise


def parameters_of(
    tree: ast.SketchTree, arguments: Mapping[str, int], machine_numbers: Mapping[str, int]
) -> dict[str, int]:
    """Return the values of all parameters and the machine's numbers.

    Raises:
        UnknownName: an argument for an unknown parameter. BadSketch: a parameter without a value.
    """
    names = [p.name for p in tree.parameters]
    for name in arguments:
        if name not in names:
            raise UnknownName("parameter", name, names, where=tree.span)
    numbers = dict(machine_numbers)
    for one in tree.parameters:
        if one.name in arguments:
            numbers[one.name] = arguments[one.name]
        elif one.name not in machine_numbers:
            if one.default is None:
                raise BadSketch(
                    f"expected a value of the parameter {one.name!r}, got none",
                    where=one.span,
                    hint=f"give it a default: sketch {tree.name}({one.name} = 2)",
                )
            numbers[one.name] = number_of(one.default, numbers)
    return numbers


def _machine_text(tree: ast.SketchTree, numbers: Mapping[str, int]) -> str:
    line = next((s for s in tree.statements if isinstance(s, ast.MachineLine)), None)
    if line is None or not line.arguments:
        return "" if line is None else line.text
    shown = []
    for one in line.arguments:
        value = ast.Name(one.name, span=one.span) if one.value is None else one.value
        text = value.text if isinstance(value, ast.Quoted) else str(number_of(value, numbers))
        shown.append(f"{one.name}={text}")
    return f"{line.text}:{','.join(shown)}"


def _collective(tree: ast.SketchTree, rules: Sequence[Rule]) -> str:
    """Return the collective of the ``collective`` line or of the phases; both must agree."""
    named = next((s.name for s in tree.statements if isinstance(s, ast.CollectiveLine)), "")
    for rule in rules:
        if not isinstance(rule, Phases):
            continue
        if named not in ("", rule.kind):
            raise BadSketch(
                f"these phases make {rule.kind}, but the sketch is for {named}",
                where=rule.span,
                hint=f"collective {rule.kind}, or leave that line out",
            )
        return str(rule.kind)
    return named


def _engine(tree: ast.SketchTree) -> str:
    """Return the proposed engine; it must exist and accept the options."""
    line = next((s for s in tree.statements if isinstance(s, ast.EngineLine)), None)
    if line is None:
        return ""
    ENGINES.create(line.spec or parse_spec(line.text))
    return line.text


class _Elaborator:
    def __init__(self) -> None:
        self.problems: list[WeftError] = []
        self.written: list[Written] = []
        # Every loop (by identity: equal loops are different lines), and if it ever iterated.
        self.turns = 0
        self.loops: dict[int, tuple[ast.Loop, bool]] = {}

    def statement(
        self, one: ast.Rule | ast.RuleBlock, meaning: Meaning, loops: Sequence[str]
    ) -> None:
        """Elaborate a line or block; ``loops`` are the variables of the enclosing loops."""
        if len(self.problems) >= MAX_ERRORS:
            return
        try:
            if isinstance(one, ast.RuleBlock):
                self._block(one, meaning, loops)
            else:
                values = "".join(f", {name} = {meaning.numbers[name]}" for name in loops)
                rules = _LineTranslation(one, meaning, values).rules()
                self.written.append(Written(one, meaning, tuple(rules)))
        except SeveralErrors as problems:
            for problem in problems.errors:
                self.note(problem)
        except UserError as problem:
            self.note(problem)

    def note(self, problem: WeftError) -> None:
        """Record a problem once; a loop repeats the same one."""
        if all((p.message, p.where) != (problem.message, problem.where) for p in self.problems):
            self.problems.append(problem)

    def _block(self, block: ast.RuleBlock, meaning: Meaning, loops: Sequence[str]) -> None:
        head = block.head
        if isinstance(head, ast.Loop):
            self._loop(block, head, meaning, loops)
            return
        if meaning.reach is not PairScope.MACHINE:
            raise BadSketch(
                f"a block about links {meaning.inside(head).reach} inside one {meaning.reach}",
                where=head.span,
                hint="end the outer block first",
            )
        inner = meaning.inside(head)
        for one in block.body:
            self.statement(one, inner, loops)

    def _loop(
        self, block: ast.RuleBlock, head: ast.Loop, meaning: Meaning, loops: Sequence[str]
    ) -> None:
        if head.variable in loops:
            raise BadSketch(
                f"{head.variable!r} is already the variable of a loop around this one",
                where=head.span,
                hint="choose another letter",
            )
        values = meaning.values(head.values)
        self.turns += len(values)
        if self.turns > MAX_TURNS:
            raise BadSketch(
                f"the loops run more than {MAX_TURNS} times",
                where=head.span,
                hint="ranges, groups and 'any' say the same in one rule",
            )
        self.loops[id(head)] = head, self.loops.get(id(head), (head, False))[1] or bool(values)
        for value in values:
            for one in block.body:
                self.statement(one, meaning.bound(head.variable, value), (*loops, head.variable))


class _LineTranslation(Frozen):
    line: ast.Rule
    meaning: Meaning
    loop_values: str

    def _label(self, text: str = "", suffix: str = "") -> str:
        """Return the label of a rule: its own, or its text (or ``text``) and line.

        ``suffix`` distinguishes the rules of one line.
        """
        line = self.line
        if line.label is not None:
            return line.label + self.loop_values + suffix
        place = f" (line {line.span.line})" if line.span is not None else ""
        return f"{text or text_of(line)}{self.loop_values}{suffix}{place}"

    def rules(self) -> Iterator[Rule]:
        """Yield the rules of the line; most lines have one."""
        line, meaning, label, span = self.line, self.meaning, self._label(), self.line.span
        self._check_block()
        match line:
            case ast.OnlyRule(selection=selection):
                found = meaning.selection(selection)
                if found.empty and (meaning.speaks_of() & meaning.machine.hops).any():
                    raise BadSketch(
                        "this allows no link at all",
                        where=span,
                        hint="an 'only' that matches nothing leaves nothing to send over",
                    )
                yield Only(found.pair_set(), found.link_set(), label=label, span=span)
            case ast.ForbidRule(selection=selection):
                found = meaning.selection(selection)
                yield Forbid(found.pair_set(), found.link_set(), label=label, span=span)
            case ast.RelayRule():
                yield from self._relay(line)
            case ast.OwnFirstRule(selection=selection):
                yield OwnFirst(self._ordered(selection), label=label, span=span)
            case ast.SwitchRule():
                yield from self._switches(line)
            case ast.SymmetryRule():
                yield from self._symmetries(line)
            case ast.ChunksRule(count=count):
                yield Chunks(meaning.count(count, "chunks"), label=label, span=span)
            case ast.ChunksBySizeRule(steps=steps, beyond=beyond):
                counted = tuple((most, meaning.count(n, "chunks")) for n, most in steps)
                last = meaning.count(beyond, "chunks")
                yield ChunksBySize(counted, last, label=label, span=span)
            case ast.MaxHopsRule(count=count):
                yield MaxHops(meaning.count(count, "max hops"), label=label, span=span)
            case ast.MaxStepsRule(count=count):
                yield MaxSteps(meaning.count(count, "max steps"), label=label, span=span)
            case ast.MaxDetourRule():
                yield self._detour(line)
            case ast.SendRule():
                yield from self._sends(line)
            case ast.PhasesRule():
                yield Phases(*phases_of(line, meaning), label=label, span=span)

    def _check_block(self) -> None:
        """Refuse lines about the whole machine in blocks, and lines in a wrong kind of block."""
        reach = self.meaning.reach
        fits: tuple[PairScope, ...]
        match self.line:
            case ast.OnlyRule() | ast.ForbidRule() | ast.OwnFirstRule():
                fits = tuple(PairScope)
            case ast.RelayRule():
                fits = (PairScope.MACHINE, PairScope.BETWEEN)
            case ast.SendRule():
                fits = (PairScope.MACHINE, PairScope.WITHIN)
            case _:
                fits = (PairScope.MACHINE,)
        if reach not in fits:
            raise BadSketch(
                f"this line is not allowed in a block about links {reach}",
                where=self.line.span,
                hint=f"it is allowed in a block about links {fits[1]}"
                if len(fits) > 1
                else "move it out of the block",
            )

    def _relay(self, line: ast.RelayRule) -> Iterator[Relay | OwnFirst]:
        meaning, machine = self.meaning, self.meaning.machine
        pairs = np.zeros_like(machine.hops)
        for pair in line.through:
            found = meaning.selector(pair)
            if found.links.any():
                raise BadSketch("a relay goes from GPU to GPU", where=pair.span)
            inside = np.argwhere(found.pairs & machine.same_host)
            if len(inside):
                a, b = map(int, inside[0])
                raise BadSketch(
                    f"this relay leaves no node: {a} and {b} are in the same one",
                    where=pair.span,
                    hint="inside 'between nodes:' the numbers are local ranks of two nodes",
                )
            pairs |= found.pairs
        if not pairs.any() and len(machine.hosts) > 1:
            raise BadSketch("this relay uses no hop between GPUs", where=line.span)
        sources = {r for host in meaning.places() for r in meaning.ranks(line.sources, host)}
        label, span = self._label(), line.span
        through, rest = _pairs(pairs), _pairs(self._free_ways_out())
        ordered = line.own_first and not rest
        yield Relay(frozenset(sources), (*through, *rest), ordered, label=label, span=span)
        if line.own_first and not ordered:
            yield OwnFirst(frozenset(through), label=label, span=span)

    def _free_ways_out(self) -> Bools:
        """Return the hops from hosts of this block to hosts outside it, which stay allowed."""
        machine, meaning = self.meaning.machine, self.meaning
        free = np.zeros_like(machine.hops)
        if meaning.hosts is not None:
            home = np.isin(machine.host_of, [host for host, _ in meaning.hosts])
            free = machine.hops & ~machine.same_host & ~meaning.speaks_of() & home[:, None]
        return free

    def _ordered(self, selection: ast.Selection | None) -> frozenset[Pair]:
        meaning = self.meaning
        if selection is None:
            return frozenset(_pairs(meaning.machine.hops & meaning.speaks_of()))
        found = meaning.selection(selection)
        if found.links.any():
            raise BadSketch("an order is for hops from GPU to GPU", where=selection.span)
        return found.pair_set()

    def _detour(self, line: ast.MaxDetourRule) -> MaxDetour:
        more = 0 if line.more is None else self.meaning.number(line.more)
        if more < 0:
            raise BadSketch(
                f"a detour of {more} hops is shorter than the shortest path",
                where=line.span,
                hint="max detour 0 hops allows shortest paths only",
            )
        return MaxDetour(line.measure, more, line.percent, label=self._label(), span=line.span)

    def _switches(self, line: ast.SwitchRule) -> Iterator[SwitchPolicy | CastPolicy]:
        machine = self.meaning.machine
        nodes = machine.topology.nodes
        if isinstance(line.switch, ast.Any):
            found = tuple(i for i, node in enumerate(nodes) if node.kind == "switch")
        else:
            found = machine.nodes_named(line.switch.text, line.switch.span)
            if not found:
                known = [node.name for node in nodes[machine.ranks :]]
                raise UnknownName("switch", line.switch.text, known, where=line.switch.span)
        named = not isinstance(line.switch, ast.Any)
        peers = line.policy.word in _PEERS
        if not peers and not named and not any(nodes[node].computes for node in found):
            raise BadSketch(
                f"no switch of {machine.topology.name} sums or copies",
                where=line.switch.span,
                hint=WHAT_SWITCHES_DO,
            )
        for node in found:
            if machine.is_gpu(node):
                text = text_of(line.switch)
                raise BadSketch(f"{text!r} is a GPU, not a switch", where=line.switch.span)
            suffix = f", {nodes[node].name}" if len(found) > 1 else ""
            if peers or named or nodes[node].computes:
                yield self._at_switch(line, node, self._label(suffix=suffix))

    def _at_switch(self, line: ast.SwitchRule, node: int, label: str) -> SwitchPolicy | CastPolicy:
        word, limit, lacks = line.policy.word, None, ""
        if line.policy.limit is not None:
            what = "peers" if word in _PEERS else "groups"
            limit = self.meaning.count(line.policy.limit, f"the number of {what}")
        if word in _PEERS:
            return SwitchPolicy(node, _PEERS[word], limit, label=label, span=line.span)
        one = self.meaning.machine.topology.nodes[node]
        allowed = None if limit is not None else _ALLOWED[word]
        if allowed is None and not one.computes:
            lacks = "can neither sum nor copy, so it has no groups"
        elif allowed and not all(getattr(one, able) for able in allowed):
            lacks = f"cannot {word}"
        if lacks:
            raise BadSketch(f"{one.name} {lacks}", where=line.switch.span, hint=WHAT_SWITCHES_DO)
        return CastPolicy(node, allowed, limit, label=label, span=line.span)

    def _symmetries(self, line: ast.SymmetryRule) -> Iterator[Symmetry]:
        problems: list[WeftError] = []
        for one in line.generators:
            text = text_of(one)
            several = line.label is not None and len(line.generators) > 1
            label = self._label(f"symmetry: {text}", f", {text}" if several else "")
            try:
                image = image_of(one, self.meaning)
            except UserError as problem:
                problems.append(problem)
            else:
                yield Symmetry(image, label=label, span=one.span or line.span)
        raise_all(problems)

    def _sends(self, line: ast.SendRule) -> Iterator[FixedSend]:
        meaning = self.meaning
        piece = None if line.piece is None else meaning.number(line.piece)
        if piece is not None and piece < 0:
            raise BadSketch(f"expected a chunk from 0 on, got {piece}", where=line.span)
        step = None if line.step is None else meaning.count(line.step, "the step")
        for host in meaning.places():
            pair = (meaning.rank(line.src, host), meaning.rank(line.dst, host))
            if not meaning.machine.hops[pair]:
                raise meaning.no_hop(*pair, line.src.span)
            owner = meaning.rank(line.owner, host)
            target = None if line.target is None else meaning.rank(line.target, host)
            suffix = f", node {host}" if host is not None and len(meaning.places()) > 1 else ""
            yield FixedSend(
                owner,
                pair,
                not line.never,
                step,
                piece,
                target,
                label=self._label(suffix=suffix),
                span=line.span,
            )


def _pairs(mask: Bools) -> tuple[Pair, ...]:
    return tuple((int(a), int(b)) for a, b in np.argwhere(mask))


def _with_free_rest(machine: SketchMachine, written: Sequence[Written]) -> Iterator[Written]:
    """Yield the lines with ``only`` rules of blocks limited to the links of their block.

    ``only`` rules add up, so those in blocks also get every pair that no ``only`` covers; one
    outside all blocks covers all pairs.
    """
    reaches = {w.meaning.reach for w in written if isinstance(w.line, ast.OnlyRule)}
    free: Bools = machine.hops.copy()
    for one in written:
        if isinstance(one.line, ast.OnlyRule):
            free &= ~one.meaning.speaks_of()
    rest = frozenset(_pairs(free)) if reaches else frozenset()
    for one in written:
        if isinstance(one.line, ast.OnlyRule) and rest:
            rules = tuple(
                replace(r, pairs=r.pairs | rest) if isinstance(r, Only) else r for r in one.rules
            )
            yield replace(one, rules=rules)
        else:
            yield one
