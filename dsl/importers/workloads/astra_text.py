"""Text workloads of ASTRA-sim: layers with times and collectives, and the kind of parallelism.

The first line is the kind, the second the number of layers; a layer has a name, a number that
nobody reads, then of forward, input gradients and weight gradients each a time, a collective and
its bytes, and the time of its update. The order of operations is that of Chakra's converter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...base.errors import BadFile, suggest
from ...base.lazy_dataclass import dataclass
from ...nouns.workload import Workload, WorkloadOperation, axis_groups, kind_named, require_size
from ...nouns.workload_file import placed

KINDS = (
    "MICRO",
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_TRANSFORMER",
)

COLUMNS = 12

COUNT = re.compile(r"[0-9]{1,15}")

FORWARD, INPUTS, WEIGHTS = "forward", "input gradients", "weight gradients"


def looks_like_astra_text(text: str) -> bool:
    """Return True if the first line is a kind of parallelism and the second a number."""
    lines = text.splitlines()
    first = lines[0].split() if lines else []
    number = lines[1].strip() if len(lines) > 1 else ""
    return bool(first) and first[0] in KINDS and bool(COUNT.fullmatch(number))


def read_astra_text(text: str, where: str, name: str, ranks: int | None) -> Workload:
    """Return the workload of one pass on so many ranks.

    ``ranks``: the text does not say how many. A kind with both parallelisms says the ranks of a
    model (``model_parallel_NPU_group: 4``), or each is half of the exponent.

    Raises:
        BadFile: a line that is not a layer, or an unknown number of ranks.
    """
    lines = text.splitlines()
    kind, *rest = (lines[0].split() if lines else []) or [""]
    if kind not in KINDS:
        raise BadFile(f"unknown kind {kind!r}", where=f"{where}:1", hint=suggest(kind, KINDS))
    layers = [_layer(line, f"{where}:{at}") for at, line in enumerate(lines[2:], 3) if line.strip()]
    stated = lines[1].strip() if len(lines) > 1 else ""
    if not COUNT.fullmatch(stated) or int(stated) != len(layers):
        raise BadFile(f"line 2 says {stated[:20]} layers, there are {len(layers)}", where=where)
    if ranks is None:
        raise BadFile(
            "the text does not say how many ranks there are", where=where, hint="--ranks N"
        )
    axes = _axes(kind, rest, ranks, where)
    sends = [*_sends(kind, layers, axes)]
    placed(lambda: require_size(sum(sends), ranks * len(sends)), where)
    step = _TrainingPass(kind, axes)
    for layer in layers:
        step.forward(layer)
    for at, layer in reversed(list(enumerate(layers))):
        step.backward(layer, last=not at)
    notes = (
        "times are µs, as Chakra's converter takes them; one pass, forward and backward",
        f"model-parallel groups are {dict(axes).get('model', 1)} consecutive ranks, data-parallel "
        "groups go across",
        "layers' update times are left out",
    )
    operations = tuple(step.operations)
    return placed(lambda: Workload(name, operations, axes=axes, notes=notes), where)


@dataclass(frozen=True, slots=True)
class _TextLayer:
    """A layer: by phase its time in µs, the kind of its collective (or empty), and bytes."""

    name: str
    phases: dict[str, tuple[Fraction, str, int]]


def _layer(line: str, where: str) -> _TextLayer:
    words = line.split()
    if len(words) < COLUMNS:
        raise BadFile(f"a layer has {COLUMNS} columns, this one {len(words)}", where=where)
    phases = {}
    for phase, at in ((FORWARD, 2), (INPUTS, 5), (WEIGHTS, 8)):
        us, kind, size = words[at : at + 3]
        if not COUNT.fullmatch(us) or not COUNT.fullmatch(size):
            raise BadFile(f"{us} {kind} {size}: not a time, a collective and bytes", where=where)
        none = kind in ("NONE", "-1") or not int(size)
        known = "" if none else _kind(kind, where)
        phases[phase] = (Fraction(us), known, int(size))
    return _TextLayer(words[0], phases)


def _kind(text: str, where: str) -> str:
    return placed(lambda: kind_named(text), where)


def _axes(kind: str, rest: Sequence[str], ranks: int, where: str) -> tuple[tuple[str, int], ...]:
    """Return the axes model and data, the model's ranks next to each other."""
    if kind in ("MICRO", "DATA"):
        model = 1
    elif kind == "MODEL":
        model = ranks
    else:
        stated = next((int(x) for x in rest if COUNT.fullmatch(x)), 0)
        model = stated or 1 << (max(ranks - 1, 1).bit_length() // 2)
    if ranks % model:
        raise BadFile(f"{ranks} ranks are not a multiple of a model's {model}", where=where)
    return (("model", model), ("data", ranks // model))


def _sends(
    kind: str, layers: Sequence[_TextLayer], axes: tuple[tuple[str, int], ...]
) -> Iterator[int]:
    """Yield the number of groups of each collective of a text, or of nearly each."""
    sizes = dict(axes)
    phases = {"MICRO": {"data": WEIGHTS}, "DATA": {"data": WEIGHTS}, "MODEL": {"model": FORWARD}}
    used = phases.get(kind, {"model": FORWARD, "data": WEIGHTS})
    for layer in layers:
        for axis, phase in used.items():
            if layer.phases[phase][1] and sizes[axis] > 1:
                yield sizes["model"] * sizes["data"] // sizes[axis]


class _TrainingPass:
    """One pass through the layers."""

    def __init__(self, kind: str, axes: tuple[tuple[str, int], ...]) -> None:
        self.kind, self.axes = kind, axes
        self.operations: list[WorkloadOperation] = []
        self.last: tuple[str, ...] = ()
        self.names: dict[str, int] = {}

    def forward(self, layer: _TextLayer) -> None:
        """Compute, then its collective, for which the next layer waits."""
        if self.kind == "MICRO":
            self._send(layer, WEIGHTS, "data", ())
            return
        self.last = self._compute(layer, FORWARD, self.last)
        if self.kind != "DATA":
            self.last = self._send(layer, FORWARD, "model", self.last) or self.last

    def backward(self, layer: _TextLayer, last: bool) -> None:
        """Gradients of inputs, for which the layer before waits, and of weights."""
        if self.kind == "MICRO":
            return
        if self.kind == "DATA":
            weights = self._compute(layer, WEIGHTS, self.last)
            self._send(layer, WEIGHTS, "data", weights)
            self.last = weights if last else self._compute(layer, INPUTS, weights)
            return
        inputs = self._compute(layer, INPUTS, self.last)
        sent = () if last else self._send(layer, INPUTS, "model", inputs)
        weights = self._compute(layer, WEIGHTS, inputs)
        if self.kind != "MODEL":
            self._send(layer, WEIGHTS, "data", weights)
        self.last = (*weights, *sent)

    def _compute(self, layer: _TextLayer, phase: str, after: tuple[str, ...]) -> tuple[str, ...]:
        name = self._unique(f"{layer.name} {phase}")
        us = layer.phases[phase][0]
        self.operations.append(WorkloadOperation(name, "compute", us=us, after=after))
        return (name,)

    def _send(
        self, layer: _TextLayer, phase: str, axis: str, after: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Add a collective on all groups of an axis; none if the layer has none."""
        _, kind, size = layer.phases[phase]
        if not kind or dict(self.axes)[axis] == 1:
            return ()
        made = []
        for group in axis_groups(self.axes, [axis]):
            name = self._unique(f"{layer.name} {kind} {phase}")
            made.append(
                WorkloadOperation(
                    name, kind, group=group, bytes=size, of_class=f"{axis}: {kind}", after=after
                )
            )
        self.operations += made
        return tuple(one.name for one in made)

    def _unique(self, name: str) -> str:
        self.names[name] = number = self.names.get(name, 0) + 1
        return name if number == 1 else f"{name} ({number})"
