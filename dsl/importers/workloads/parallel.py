"""Settings of parallel training as a workload: what each class sends in a step, by formulas.

A TOML file::

    [parallel]
    tp = 8
    pp = 4
    dp = 16
    ep = 8                      # of the dp ranks
    order = "tp-cp-ep-dp-pp"    # Megatron's default, the first is the fastest
    [model]
    layers = 32
    hidden = 4096
    sequence = 4096
    [step]
    micro_batch = 1
    micro_batches = 8

Formulas, with b, s, h the micro-batch, sequence and hidden size, L the layers of a stage and m the
micro-batches; activations have 2 bytes, gradients 4 unless the file says otherwise:

* tensor: 4 allreduces of b·s·h/cp for each layer and micro-batch (2 forward, 2 backward); with
  sequence parallelism each is an allgather and a reduce_scatter of that size;
* data: the gradients of (attention and dense weights)/(tp·pp), once, over all ranks that differ in
  dp, ep and cp; those of experts over the ranks that differ in dp only;
* pipeline: b·s·h/cp for each micro-batch and border, forward and backward, to the same place of the
  next stage (1/tp of it with sequence parallelism);
* experts: 4 alltoalls of b·s·top_k·h/cp for each MoE layer and micro-batch (2 forward, 2 backward).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import BadFile
from ...base.files import Fields, parse_toml
from ...base.lazy_dataclass import dataclass
from ...nouns.workload import Workload, WorkloadOperation, axis_groups
from ...nouns.workload_file import placed

ORDER = "tp-cp-ep-dp-pp"

AXES = ("tp", "cp", "ep", "dp", "pp")


def looks_like_settings(text: str) -> bool:
    """Return True for a text with a table ``[parallel]``."""
    return any(line.strip() == "[parallel]" for line in text.splitlines())


def read_settings(text: str, where: str, name: str) -> Workload:
    """Return the workload of a step: an operation for each group of each class, all at once.

    Raises:
        BadFile: not such a file, sizes that do not divide, or an order that is not one.
    """
    one = _ParallelSettings.of(parse_toml(text, where), where)
    operations = [*one.tensor(), *one.pipeline(), *one.data(), *one.experts()]
    if not operations:
        raise BadFile("every axis has one rank: nothing is sent", where=where)
    notes = (
        "a class is all that it sends in one step; all classes start together",
        f"ranks are numbered in the order {one.order}, the first axis is the fastest",
        *(("what context parallelism itself sends is left out",) if one.sizes["cp"] > 1 else ()),
    )
    return placed(lambda: Workload(name, tuple(operations), axes=one.axes, notes=notes), where)


@dataclass(frozen=True, slots=True)
class _ParallelSettings:
    """The settings, with their defaults."""

    sizes: Mapping[str, int]
    order: str
    model: Mapping[str, int]
    step: Mapping[str, int]
    where: str

    @staticmethod
    def of(data: Mapping[str, Any], where: str) -> _ParallelSettings:
        fields = Fields(data, where)
        parallel = Fields(fields.get("parallel", dict), f"{where}: parallel")
        sizes = {axis: parallel.get(axis, int, 1) for axis in AXES}
        order = parallel.get("order", str, ORDER)
        parallel.finish(ignore=())
        model = Fields(fields.get("model", dict), f"{where}: model")
        hidden = model.get("hidden", int)
        shape = {
            "layers": model.get("layers", int),
            "hidden": hidden,
            "sequence": model.get("sequence", int),
            "feed_forward": model.get("feed_forward", int, 4 * hidden),
            "experts": model.get("experts", int, 0),
            "top_k": model.get("top_k", int, 1),
            "moe_layers": model.get("moe_layers", int, 0),
        }
        if shape["experts"] and not shape["moe_layers"]:
            shape["moe_layers"] = shape["layers"]
        model.finish(ignore=())
        step = Fields(fields.get("step", dict, {}), f"{where}: step")
        rest = {
            "micro_batch": step.get("micro_batch", int, 1),
            "micro_batches": step.get("micro_batches", int, 1),
            "activation_bytes": step.get("activation_bytes", int, 2),
            "gradient_bytes": step.get("gradient_bytes", int, 4),
            "sequence_parallel": int(step.get("sequence_parallel", bool, False)),
            "distributed_optimizer": int(step.get("distributed_optimizer", bool, False)),
        }
        step.finish(ignore=())
        fields.finish(ignore=())
        return _checked(_ParallelSettings(sizes, order, shape, rest, where))

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Axes in their order; ``dp`` has the ranks that ``ep`` leaves."""
        sizes = {**self.sizes, "dp": self.sizes["dp"] // self.sizes["ep"]}
        return tuple((axis, sizes[axis]) for axis in self.order.split("-"))

    def _activation(self) -> int:
        """Bytes of the activations of one micro-batch on one rank of its sequence."""
        m, s = self.model, self.step
        elements = s["micro_batch"] * m["sequence"] * m["hidden"] // self.sizes["cp"]
        return elements * s["activation_bytes"]

    def _classes(
        self, name: str, kind: str, over: tuple[str, ...], size: int
    ) -> list[WorkloadOperation]:
        groups = axis_groups(self.axes, over)
        if not size or len(groups[0]) == 1:
            return []
        return [
            WorkloadOperation(f"{name}[{at}]", kind, group=group, bytes=size, of_class=name)
            for at, group in enumerate(groups)
        ]

    def tensor(self) -> list[WorkloadOperation]:
        """Activations within a layer."""
        layers = self.model["layers"] // self.sizes["pp"]
        size = 4 * layers * self.step["micro_batches"] * self._activation()
        if not self.step["sequence_parallel"]:
            return self._classes("tp", "allreduce", ("tp",), size)
        return [
            *self._classes("tp gather", "allgather", ("tp",), size),
            *self._classes("tp scatter", "reduce_scatter", ("tp",), size),
        ]

    def data(self) -> list[WorkloadOperation]:
        """Gradients of the weights."""
        m, sizes = self.model, self.sizes
        attention = 4 * m["hidden"] ** 2
        feed_forward = 2 * m["hidden"] * m["feed_forward"]
        dense = m["layers"] * attention + (m["layers"] - m["moe_layers"]) * feed_forward
        expert = m["moe_layers"] * m["experts"] * feed_forward // sizes["ep"]
        width = self.step["gradient_bytes"]
        parts = sizes["tp"] * sizes["pp"]
        found = []
        for name, over, weights in (
            ("dp", ("cp", "ep", "dp"), dense),
            ("expert dp", ("dp",), expert),
        ):
            size = weights // parts * width
            if self.step["distributed_optimizer"]:
                found += self._classes(f"{name} scatter", "reduce_scatter", over, size)
                half = size * self.step["activation_bytes"] // width
                found += self._classes(f"{name} gather", "allgather", over, half)
            else:
                found += self._classes(name, "allreduce", over, size)
        return found

    def pipeline(self) -> list[WorkloadOperation]:
        """Activations from each stage to the next, and gradients back."""
        size = self.step["micro_batches"] * self._activation()
        if self.step["sequence_parallel"]:
            size //= self.sizes["tp"]
        found = []
        for at, group in enumerate(axis_groups(self.axes, ("pp",))):
            for stage in range(len(group) - 1):
                one, other = group[stage : stage + 2]
                for word, pair in (("forward", (one, other)), ("back", (other, one))):
                    name = f"pp {word}[{at}.{stage}]"
                    found.append(
                        WorkloadOperation(name, "transfer", group=pair, bytes=size, of_class="pp")
                    )
        return found

    def experts(self) -> list[WorkloadOperation]:
        """Tokens to their experts, and back."""
        layers = self.model["moe_layers"] // self.sizes["pp"]
        tokens = self._activation() * self.model["top_k"]
        size = 4 * layers * self.step["micro_batches"] * tokens
        return self._classes("ep", "alltoall", ("ep",), size)


def _checked(one: _ParallelSettings) -> _ParallelSettings:
    """Return settings whose sizes fit each other."""
    for label, table in (("parallel", one.sizes), ("model", one.model), ("step", one.step)):
        for key, value in table.items():
            least = 1 if label == "parallel" or key in ("layers", "hidden", "sequence") else 0
            if not least <= value <= 1 << 40:
                raise BadFile(f"{key} is {value}", where=f"{one.where}: {label}")
    if sorted(one.order.split("-")) != sorted(AXES):
        raise BadFile(
            f"the order {one.order!r} does not name each axis once",
            where=f"{one.where}: parallel",
            hint=f'order = "{ORDER}"',
        )
    if one.sizes["dp"] % one.sizes["ep"]:
        raise BadFile(
            f"dp = {one.sizes['dp']} is not a multiple of ep = {one.sizes['ep']}",
            where=f"{one.where}: parallel",
            hint="the ranks of ep are among those of dp",
        )
    if one.model["layers"] % one.sizes["pp"]:
        raise BadFile(
            f"{one.model['layers']} layers are not a multiple of pp = {one.sizes['pp']}",
            where=one.where,
        )
    return one
