"""Text workloads of ASTRA-sim 1.0: layers with times and collectives, and the kind of parallelism.

The first line is the kind, the second the number of layers; a layer has a name, an unused
number, then of forward, input gradients and weight gradients each a time, a collective and
its bytes, and the time of its update. Groups and order are those of ASTRA-sim 1.0's training loops
(``Workload.cc``), bytes those that one rank puts in. A phase without a group sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from ...base.errors import BadFile, placed, suggest
from ...base.lazy_dataclass import Frozen
from ...nouns.workload import Workload, WorkloadOperation, axis_groups, kind_named, require_size
from .chakra import PARTS

FORWARD, INPUTS, WEIGHTS = "forward", "input gradients", "weight gradients"

BOTH = {FORWARD: "model", INPUTS: "model", WEIGHTS: "data"}

KINDS = {
    "MICRO": {WEIGHTS: "data"},
    "DATA": {WEIGHTS: "data"},
    "MODEL": {FORWARD: "model", INPUTS: "model"},
    "DISTRIBUTED_INFERENCE": {FORWARD: "model", INPUTS: "model"},
    "HYBRID_DATA_MODEL": BOTH,
    "HYBRID_MODEL_DATA": BOTH,
    "HYBRID_TRANSFORMER": BOTH,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": BOTH,
    "HYBRID_DLRM": {WEIGHTS: "data"},
    "HYBRID_DLRM_ENHANCED": {WEIGHTS: "data"},
    "HYBRID_CUSTOMIZED": {},
}
"""Kinds of parallelism: the phases that send, and between which ranks."""

OF_LAYERS = ("DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")
"""Kinds that a layer of a customized text may have."""

EMBEDDING = dict.fromkeys(BOTH, "data")
"""Phases of the first layer of a DLRM, whose tables are spread over all ranks."""

COLUMNS = 12

COUNT = re.compile(r"[0-9]{1,15}")

Axes = tuple[tuple[str, int], ...]


def looks_like_astra_text(text: str) -> bool:
    """Return True if the first line is a kind of parallelism and the second a number."""
    lines = text.splitlines()
    first = lines[0].split() if lines else []
    number = lines[1].strip() if len(lines) > 1 else ""
    known = bool(first) and (first[0] in KINDS or first[0].startswith("HYBRID_"))
    return known and bool(COUNT.fullmatch(number))


def read_astra_text(text: str, where: str, name: str, ranks: int | None) -> Workload:
    """Return the workload of one pass on ``ranks``.

    ``ranks``: the text does not say how many. A kind with both parallelisms says the ranks of a
    model (``model_parallel_NPU_group: 4``), or each is half of the exponent.

    Raises:
        BadFile: a line that is not a layer, or an unknown number of ranks.
    """
    lines = text.splitlines()
    kind, *rest = (lines[0].split() if lines else []) or [""]
    if kind not in KINDS:
        raise BadFile(f"unknown kind {kind!r}", where=f"{where}:1", hint=suggest(kind, KINDS))
    rows = [(line, at) for at, line in enumerate(lines[2:], 3) if line.strip()]
    layers = [_layer(line, kind, not i, f"{where}:{at}") for i, (line, at) in enumerate(rows)]
    stated = lines[1].strip() if len(lines) > 1 else ""
    if not COUNT.fullmatch(stated) or int(stated) != len(layers):
        raise BadFile(f"line 2 says {stated[:20]} layers, there are {len(layers)}", where=where)
    if ranks is None:
        raise BadFile(
            "the text does not say how many ranks there are", where=where, hint="--ranks N"
        )
    head = _head(kind, rest, len(layers), f"{where}:1")
    axes = _axes(kind, head.model, ranks, where)
    step = _TrainingPass(kind, head, layers, axes)
    sending = [step.axes_of(one, phase) for one in layers for phase in one.phases]
    groups = [len(axis_groups(axes, over)) for over in dict.fromkeys(filter(None, sending))]
    counted = sum(max(groups, default=0) for over in sending if over)
    placed(lambda: require_size(counted, ranks * sum(map(bool, sending))), where)
    step.run()
    notes = [
        "times are µs, as Chakra's converter takes them; ASTRA-sim 1.0 itself counts cycles",
        "one pass; layers' update times are left out",
        "bytes of an allgather are one rank's part, M is n times that",
    ]
    (inner, size), (outer, other) = axes
    if size > 1 and other > 1:
        notes.append(f"{inner} groups are {size} consecutive ranks, {outer} groups go across")
    operations = tuple(step.operations)
    return placed(lambda: Workload(name, operations, axes=axes, notes=tuple(notes)), where)


class _TextLayer(Frozen):
    """A layer: by phase its time in µs, the kind of its collective (or empty), and bytes.

    ``kind``: its kind of parallelism; ``roles``: between which ranks its phases send.
    """

    name: str
    phases: dict[str, tuple[Fraction, str, int]]
    kind: str
    roles: dict[str, str]


class _Head(Frozen):
    """Settings on the first line, after the kind.

    Attributes:
        model: ranks of a model; 0: not stated. ``bottom``: last layer of a DLRM's bottom.
        checkpoints: layers whose input is kept; ``initiates``: those before whose gradients all
            layers from the last checkpoint on are computed again.
    """

    model: int = 0
    bottom: int = 0
    checkpoints: tuple[int, ...] = ()
    initiates: tuple[int, ...] = ()


def _layer(line: str, kind: str, first: bool, where: str) -> _TextLayer:
    words = line.split()
    columns = COLUMNS + (kind == "HYBRID_CUSTOMIZED")
    if len(words) < columns:
        raise BadFile(f"a layer has {columns} columns, this one {len(words)}", where=where)
    phases = {}
    for phase, at in ((FORWARD, 2), (INPUTS, 5), (WEIGHTS, 8)):
        us, name, size = words[at : at + 3]
        if not COUNT.fullmatch(us) or not COUNT.fullmatch(size):
            raise BadFile(f"{us} {name} {size}: not a time, a collective and bytes", where=where)
        none = name in ("NONE", "-1") or not int(size)
        known = "" if none else _kind(name, where)
        phases[phase] = (Fraction(us), known, int(size))
    own = words[COLUMNS] if kind == "HYBRID_CUSTOMIZED" else kind
    if own not in (OF_LAYERS if kind == "HYBRID_CUSTOMIZED" else KINDS):
        raise BadFile(f"unknown kind {own!r}", where=where, hint=suggest(own, OF_LAYERS))
    roles = EMBEDDING if first and kind.startswith("HYBRID_DLRM") else KINDS[own]
    return _TextLayer(words[0], phases, own, roles)


def _kind(text: str, where: str) -> str:
    return placed(lambda: kind_named(text), where)


def _head(kind: str, words: Sequence[str], layers: int, where: str) -> _Head:
    """Return the fields of the first line: numbers after labels (``checkpoints: 2 2 11``)."""
    numbers = [int(x) for x in words if COUNT.fullmatch(x)]
    if kind.startswith("HYBRID_DLRM"):
        if not numbers or numbers[0] >= layers:
            raise BadFile(
                "the last layer of the bottom is missing, or not a layer",
                where=where,
                hint=f"{kind} 4: layers are counted from 0",
            )
        return _Head(bottom=numbers[0])
    if kind != "HYBRID_TRANSFORMER_FWD_IN_BCKWD":
        return _Head(model=numbers[0] if numbers else 0)
    model, *counted = numbers or [0]
    lists = []
    for _ in range(2):
        size, *counted = counted or [0]
        lists.append(tuple(counted[:size]))
        counted = counted[size:]
        if len(lists[-1]) < size or any(x >= layers for x in lists[-1]):
            raise BadFile(
                "checkpoints are not layers of the text",
                where=where,
                hint=f"{kind} model_parallel_NPU_group: 4 checkpoints: 2 0 11 "
                "checkpoint_initiates: 2 19 10",
            )
    lost = [x for x in lists[1] if not any(y <= x for y in lists[0])]
    if lost:
        raise BadFile(f"no checkpoint at or before layer {lost[0]}", where=where)
    return _Head(model, 0, *lists)


def _axes(kind: str, stated: int, ranks: int, where: str) -> Axes:
    roles = set(KINDS[kind].values())
    if len(roles) == 1:
        model = ranks if roles == {"model"} else 1
    else:
        model = stated or 1 << (max(ranks - 1, 1).bit_length() // 2)
    if ranks % model:
        raise BadFile(f"{ranks} ranks are not a multiple of a model's {model}", where=where)
    if kind == "HYBRID_CUSTOMIZED":
        return (("inner", model), ("outer", ranks // model))
    axes = (("model", model), ("data", ranks // model))
    return axes[::-1] if kind == "HYBRID_MODEL_DATA" else axes


class _TrainingPass:
    def __init__(self, kind: str, head: _Head, layers: Sequence[_TextLayer], axes: Axes) -> None:
        self.kind, self.head, self.layers, self.axes = kind, head, layers, axes
        self.operations: list[WorkloadOperation] = []
        self.last: tuple[str, ...] = ()
        self.names: dict[str, int] = {}

    def axes_of(self, layer: _TextLayer, phase: str) -> tuple[str, ...]:
        """Return the axes that a phase sends along; empty if it sends nothing."""
        role = layer.roles.get(phase)
        if role is None or not layer.phases[phase][1]:
            return ()
        names = [name for name, _ in self.axes]
        if len(set(layer.roles.values())) == 1:
            over = names
        else:
            first = "data" if layer.kind == "HYBRID_MODEL_DATA" else "model"
            over = names[:1] if role == first else names[1:]
        sizes = dict(self.axes)
        return tuple(over) if any(sizes[x] > 1 for x in over) else ()

    def run(self) -> None:
        if self.kind == "MICRO":
            for layer in self.layers:
                self._send(layer, WEIGHTS, ())
        elif self.kind.startswith("HYBRID_DLRM"):
            self._recommend()
        else:
            for layer in self.layers:
                self._forward(layer)
            for at in reversed(range(len(self.layers))):
                self._backward(at)

    def _forward(self, layer: _TextLayer) -> None:
        """Compute, then the collective, for which the next layer waits."""
        self.last = self._compute(layer, FORWARD, self.last)
        self.last = self._send(layer, FORWARD, self.last) or self.last

    def _backward(self, at: int) -> None:
        """Gradients of inputs, for which the layer before waits, and of weights."""
        layer = self.layers[at]
        if self.kind == "DISTRIBUTED_INFERENCE":
            return
        if self.kind == "DATA":
            weights = self._compute(layer, WEIGHTS, self.last)
            self._send(layer, WEIGHTS, weights)
            self.last = self._compute(layer, INPUTS, weights) if at else weights
            return
        if at in self.head.initiates:
            start = max(x for x in self.head.checkpoints if x <= at)
            for again in self.layers[start:at]:
                self._forward(again)
        inputs = self._compute(layer, INPUTS, self.last)
        # transformers send the gradients of the first layer's inputs too
        sent: tuple[str, ...] = ()
        if at or self.kind.startswith("HYBRID_TRANSFORMER"):
            sent = self._send(layer, INPUTS, inputs)
        weights = self._compute(layer, WEIGHTS, inputs)
        self._send(layer, WEIGHTS, weights)
        self.last = (*weights, *sent)

    def _recommend(self) -> None:
        """Embeddings go to all ranks beside the bottom; the layers above it wait for them."""
        looked_up: tuple[str, ...] = ()
        for at, layer in enumerate(self.layers):
            self.last = self._compute(layer, FORWARD, self.last)
            if layer.phases[FORWARD][1] == "alltoall":
                looked_up += self._send(layer, FORWARD, self.last)
            elif at == self.head.bottom:
                self.last += looked_up
        returned: tuple[str, ...] = ()
        for at in reversed(range(len(self.layers))):
            layer = self.layers[at]
            # the enhanced kind takes the gradients of the embeddings in the next pass
            waits = returned if not at and self.kind == "HYBRID_DLRM" else ()
            self.last = self._compute(layer, WEIGHTS, (*self.last, *waits))
            self._send(layer, WEIGHTS, self.last)
            if at:
                self.last = self._compute(layer, INPUTS, self.last)
            if at == self.head.bottom + 1:
                returned = self._send(self.layers[0], INPUTS, self.last)

    def _compute(self, layer: _TextLayer, phase: str, after: tuple[str, ...]) -> tuple[str, ...]:
        name = self._unique(f"{layer.name} {phase}")
        us = layer.phases[phase][0]
        self.operations.append(WorkloadOperation(name, "compute", us=us, after=after))
        return (name,)

    def _send(self, layer: _TextLayer, phase: str, after: tuple[str, ...]) -> tuple[str, ...]:
        """Add a collective on all groups of its axes; none if the phase sends nothing."""
        over = self.axes_of(layer, phase)
        if not over:
            return ()
        _, kind, size = layer.phases[phase]
        label = f"{layer.roles[phase]}: {kind}"
        made = []
        for group in axis_groups(self.axes, over):
            name = self._unique(f"{layer.name} {kind} {phase}")
            total = size * (len(group) if kind in PARTS else 1)
            made.append(
                WorkloadOperation(name, kind, group=group, bytes=total, of_class=label, after=after)
            )
        self.operations += made
        return tuple(one.name for one in made)

    def _unique(self, name: str) -> str:
        self.names[name] = number = self.names.get(name, 0) + 1
        return name if number == 1 else f"{name} ({number})"
