"""Settings of parallel training as a workload: the data of each class in a step, by formulas.

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
    heads = 32                  # kv_heads = 8: grouped queries
    gated = true                # three matrices in an MLP (SwiGLU), else two
    vocabulary = 128256         # tied_embeddings = true: one matrix for both ends
    parameters = 8.03e9         # instead of what these count
    [step]
    micro_batch = 1
    micro_batches = 8           # or global_batch = 128
    relays = "none"             # "all", "idle": ranks that may forward, as in a workload

Megatron's and Hugging Face's names of these keys are taken, too. Formulas, with b, s, h the
micro-batch, sequence and hidden size, L the layers of a stage and m the micro-batches; activations
have 2 bytes, gradients 4 unless the file says otherwise:

* tensor: 4 allreduces of b·s·h/cp for each layer and micro-batch (2 forward, 2 backward); with
  sequence parallelism each is an allgather and a reduce_scatter of that size;
* data: the gradients of (attention, norms, embeddings and dense weights of a stage)/tp, once, over
  all ranks that differ in dp, ep and cp; those of experts over the ranks that differ in dp and cp;
* pipeline: b·s·h/cp for each micro-batch and border, forward and backward, to the same place of the
  next stage (1/tp of it with sequence parallelism); once the gradients of tied embeddings between
  the first and the last stage;
* experts: 4 alltoalls of b·s·top_k·h/cp for each MoE layer and micro-batch (2 forward, 2 backward),
  1/tp of it with sequence parallelism, where a rank holds only its part of the tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...base.errors import BadFile, placed, suggest
from ...base.files import Fields, parse_toml
from ...base.lazy_dataclass import Frozen
from ...nouns.collective import LARGEST_GROUP
from ...nouns.workload import Forwarders, Workload, WorkloadOperation, axis_groups, require_size
from ...nouns.workload_file import relays_of

ORDER = "tp-cp-ep-dp-pp"

AXES = ("tp", "cp", "ep", "dp", "pp")

_KEYS: tuple[tuple[str, str, int | str | None, str], ...] = (
    ("parallel", "tp", 1, "tensor_model_parallel_size tensor_parallel_size"),
    ("parallel", "cp", 1, "context_parallel_size"),
    ("parallel", "ep", 1, "expert_model_parallel_size expert_parallel_size"),
    ("parallel", "dp", 1, "data_parallel_size"),
    ("parallel", "pp", 1, "pipeline_model_parallel_size pipeline_parallel_size"),
    ("parallel", "order", ORDER, ""),
    ("parallel", "first_stage_layers", 0, "decoder_first_pipeline_num_layers"),
    ("parallel", "last_stage_layers", 0, "decoder_last_pipeline_num_layers"),
    ("model", "layers", None, "num_layers num_hidden_layers n_layers n_layer"),
    ("model", "hidden", None, "hidden_size d_model dim n_embd"),
    ("model", "sequence", None, "seq_length sequence_length seq_len n_ctx"),
    ("model", "heads", 0, "num_attention_heads attention_heads n_heads num_heads n_head"),
    ("model", "kv_heads", 0, "num_query_groups num_key_value_heads n_kv_heads"),
    ("model", "head_size", 0, "kv_channels head_dim"),
    ("model", "feed_forward", 0, "ffn_hidden_size intermediate_size ffn_hidden"),
    ("model", "gated", False, "swiglu"),
    ("model", "biases", False, "add_bias_linear"),
    ("model", "vocabulary", 0, "vocab_size padded_vocab_size vocab"),
    ("model", "tied_embeddings", False, "tie_word_embeddings tied"),
    ("model", "parameters", 0, "num_parameters"),
    ("model", "experts", 0, "num_experts num_local_experts n_routed_experts"),
    ("model", "top_k", 1, "moe_router_topk num_experts_per_tok"),
    ("model", "moe_layers", 0, ""),
    ("model", "expert_feed_forward", 0, "moe_ffn_hidden_size moe_intermediate_size"),
    ("model", "shared_experts", 0, "n_shared_experts"),
    ("step", "micro_batch", 1, "micro_batch_size per_device_train_batch_size"),
    (
        "step",
        "micro_batches",
        1,
        "num_microbatches num_micro_batches gradient_accumulation_steps",
    ),
    ("step", "global_batch", 0, "global_batch_size train_batch_size"),
    ("step", "activation_bytes", 2, ""),
    ("step", "gradient_bytes", 4, ""),
    ("step", "sequence_parallel", False, ""),
    ("step", "distributed_optimizer", False, "use_distributed_optimizer"),
    ("step", "relays", str(Forwarders.NONE), ""),
)
"""Table, key, default (None: must be there; 0: follows from others), and names that Megatron-LM and
Hugging Face's configurations have for it."""


def looks_like_settings(text: str) -> bool:
    """Return True for a text with a table ``[parallel]``."""
    return any(re.match(r"\s{0,40}\[\s{0,9}parallel\s{0,9}\]", line) for line in text.splitlines())


def read_settings(text: str, where: str, name: str) -> Workload:
    """Return the workload of a step: an operation for each group of each class, all at once.

    Raises:
        BadFile: not such a file, sizes that do not fit each other, or an order that is not one.
    """
    one = _settings_of(parse_toml(text, where), where)
    operations = [*one.tensor(), *one.pipeline(), *one.data(), *one.experts()]
    if not operations:
        raise BadFile("every axis has one rank: nothing is sent", where=where)
    notes = (
        "a class is all that it sends in one step; all classes start together",
        f"ranks are numbered in the order {one.order}, the first axis is the fastest",
        *one.notes(),
        *(("what context parallelism itself sends is left out",) if one.sizes["cp"] > 1 else ()),
    )
    operations = [replace(operation, relays=one.relays) for operation in operations]
    return placed(lambda: Workload(name, tuple(operations), axes=one.axes, notes=notes), where)


class _WeightCounts(Frozen):
    """Weights of a model: a dense and a MoE layer without its experts, an MLP, both ends.

    ``experts``: those of a MoE layer. ``first``, ``last``: beside the layers of these stages.
    """

    dense: int
    routed: int
    experts: int
    first: int
    last: int


def _weights_of(m: Mapping[str, int]) -> _WeightCounts:
    """Return the numbers that Megatron-LM's GPT and Llama's checkpoints have.

    An MLP has two matrices, or three if it is gated; a layer two norms, and the model a last one.
    With biases, as in GPT, each matrix and norm has one, and positions are learned. Without a
    vocabulary the layers are all that is known.
    """
    h, biased = m["hidden"], m["biases"]
    queries, keys = m["heads"] * m["head_size"], m["kv_heads"] * m["head_size"]

    def mlp(wide: int) -> int:
        return (2 + m["gated"]) * h * wide + biased * ((1 + m["gated"]) * wide + h)

    norm = h * (1 + biased)
    attention = 2 * h * (queries + keys) + biased * (queries + 2 * keys + h) + 2 * norm
    expert = mlp(m["expert_feed_forward"])
    table = m["vocabulary"] * h
    return _WeightCounts(
        dense=attention + mlp(m["feed_forward"]),
        routed=attention + h * m["experts"] + m["shared_experts"] * expert,
        experts=m["experts"] * expert,
        first=table + biased * m["sequence"] * h if table else 0,
        last=norm + (0 if m["tied_embeddings"] else table) if table else 0,
    )


class _ParallelSettings(Frozen):
    """The settings, with their defaults; ``given``: keys that the file has itself.

    ``stages``: layers of each stage, and how many of them are MoE layers. ``relays``: ranks that
    may forward.
    """

    sizes: Mapping[str, int]
    order: str
    model: Mapping[str, int]
    step: Mapping[str, int]
    given: frozenset[str]
    stages: Sequence[tuple[int, int]]
    relays: Forwarders

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Axes in their order; ``dp`` has the ranks that ``ep`` leaves."""
        sizes = {**self.sizes, "dp": self.sizes["dp"] // self.sizes["ep"]}
        return tuple((axis, sizes[axis]) for axis in self.order.split("-"))

    def notes(self) -> Iterator[str]:
        m = self.model
        if not m["parameters"]:
            assumed = (
                ("kv_heads", "as many heads of keys and values as of queries"),
                ("gated", "two matrices in an MLP"),
                ("vocabulary", "no embeddings"),
            )
            told = [words for key, words in assumed if key not in self.given]
            change = "parameters = 7e9 states another number"
            if told:
                keys = ", ".join(key for key, _ in assumed if key not in self.given)
                told, change = [f": with {', '.join(told)}"], f"{keys} or parameters change it"
            yield f"the model has {self.counted():,} parameters{''.join(told)} ({change})"
        else:
            yield f"the model has {m['parameters']:,} parameters, as stated"
        if len({layers for layers, _ in self.stages}) > 1:
            layers = ", ".join(str(layers) for layers, _ in self.stages)
            yield f"layers of stages: {layers} (first_stage_layers, last_stage_layers change it)"
        if self.sizes["ep"] > 1 and not m["moe_layers"]:
            yield f"ep = {self.sizes['ep']} sends nothing: no layer has experts (experts = 8)"
        if 0 < m["moe_layers"] < m["layers"]:
            yield f"{m['moe_layers']} of {m['layers']} layers have experts, spread evenly"

    def counted(self) -> int:
        """Return how many parameters the shape of the model gives."""
        m, w = self.model, _weights_of(self.model)
        dense = m["layers"] - m["moe_layers"]
        return dense * w.dense + m["moe_layers"] * (w.routed + w.experts) + w.first + w.last

    def spare(self) -> int:
        """Return the parameters left to layers by a stated number, experts left out."""
        m, w = self.model, _weights_of(self.model)
        return m["parameters"] - w.first - w.last - m["moe_layers"] * w.experts

    def _activation(self) -> int:
        """Bytes of the activations of one micro-batch on one rank of its sequence."""
        m, s = self.model, self.step
        elements = s["micro_batch"] * m["sequence"] * m["hidden"] // self.sizes["cp"]
        return elements * s["activation_bytes"]

    def _held_activation(self) -> int:
        """Bytes of those that a rank holds between layers: its part with sequence parallelism."""
        parts = self.sizes["tp"] if self.step["sequence_parallel"] else 1
        return self._activation() // parts

    def _classes(
        self, name: str, kind: str, over: tuple[str, ...], sizes: Sequence[int]
    ) -> list[WorkloadOperation]:
        """Return an operation for each group; ``sizes``: its bytes in each stage."""
        names = [axis for axis, _ in self.axes]
        stride = prod(size for _, size in self.axes[: names.index("pp")])
        groups = axis_groups(self.axes, over)
        if len(groups[0]) == 1:
            return []
        stages = [group[0] // stride % self.sizes["pp"] for group in groups]
        return [
            WorkloadOperation(f"{name}[{at}]", kind, group=group, bytes=sizes[stage], of_class=name)
            for at, (group, stage) in enumerate(zip(groups, stages, strict=True))
            if sizes[stage]
        ]

    def tensor(self) -> list[WorkloadOperation]:
        """Activations within a layer."""
        layer = 4 * self.step["micro_batches"] * self._activation()
        sizes = [layers * layer for layers, _ in self.stages]
        if not self.step["sequence_parallel"]:
            return self._classes("tp", "allreduce", ("tp",), sizes)
        return [
            *self._classes("tp gather", "allgather", ("tp",), sizes),
            *self._classes("tp scatter", "reduce_scatter", ("tp",), sizes),
        ]

    def _stage_weights(self) -> list[tuple[int, int]]:
        """Return how many dense and how many experts' weights each stage has.

        A stated number of parameters leaves to the layers what experts and embeddings do not have.
        """
        m, w = self.model, _weights_of(self.model)
        last = len(self.stages) - 1
        found = []
        for at, (layers, routed) in enumerate(self.stages):
            dense = (layers - routed) * w.dense + routed * w.routed
            if m["parameters"]:
                dense = self.spare() * layers // m["layers"]
            copied = m["vocabulary"] * m["hidden"] if m["tied_embeddings"] and last else 0
            ends = (w.first if at == 0 else 0) + (w.last + copied if at == last else 0)
            found.append((dense + ends, routed * w.experts // self.sizes["ep"]))
        return found

    def data(self) -> list[WorkloadOperation]:
        """Gradients of the weights."""
        width = self.step["gradient_bytes"]
        found = []
        columns = zip(*self._stage_weights(), strict=True)
        over = (("dp", ("cp", "ep", "dp")), ("expert dp", ("cp", "dp")))
        for (name, axes), weights in zip(over, columns, strict=True):
            sizes = [one // self.sizes["tp"] * width for one in weights]
            if self.step["distributed_optimizer"]:
                found += self._classes(f"{name} scatter", "reduce_scatter", axes, sizes)
                halves = [size * self.step["activation_bytes"] // width for size in sizes]
                found += self._classes(f"{name} gather", "allgather", axes, halves)
            else:
                found += self._classes(name, "allreduce", axes, sizes)
        return found

    def pipeline(self) -> list[WorkloadOperation]:
        """Activations from each stage to the next, and gradients back; and those of tied ends."""
        size = self.step["micro_batches"] * self._held_activation()
        m = self.model
        table = m["vocabulary"] * m["hidden"] // self.sizes["tp"] * self.step["gradient_bytes"]
        found = []
        for at, group in enumerate(axis_groups(self.axes, ("pp",))):
            for stage in range(len(group) - 1):
                one, other = group[stage : stage + 2]
                for word, pair in (("forward", (one, other)), ("back", (other, one))):
                    name = f"pp {word}[{at}.{stage}]"
                    found.append(
                        WorkloadOperation(name, "transfer", group=pair, bytes=size, of_class="pp")
                    )
            if m["tied_embeddings"] and table and len(group) > 1:
                name, ends = f"embedding[{at}]", (group[0], group[-1])
                found.append(
                    WorkloadOperation(
                        name, "allreduce", group=ends, bytes=table, of_class="embedding"
                    )
                )
        return found

    def experts(self) -> list[WorkloadOperation]:
        """Tokens to their experts, and back."""
        tokens = self._held_activation() * self.model["top_k"]
        layer = 4 * self.step["micro_batches"] * tokens
        return self._classes(
            "ep", "alltoall", ("ep",), [routed * layer for _, routed in self.stages]
        )


# --- reading --------------------------------------------------------------------------------------


def _settings_of(data: Mapping[str, Any], where: str) -> _ParallelSettings:
    fields = Fields(data, where)
    found: dict[str, dict[str, Any]] = {}
    given: set[str] = set()
    for label in ("parallel", "model", "step"):
        table = _spelled(fields.get(label, dict, *(() if label != "step" else ({},))), where, label)
        given |= set(table)
        entries = Fields(table, f"{where}: {label}")
        found[label] = {
            key: entries.get(key, _kind(key, default), *(() if default is None else (default,)))
            for home, key, default, _ in _KEYS
            if home == label
        }
        for key, value in found[label].items():
            if not isinstance(value, str):
                _require_range(key, value, f"{where}: {label}")
    fields.finish(ignore=())
    parallel, order = found["parallel"], found["parallel"].pop("order")
    relays = relays_of(found["step"].pop("relays"), f"{where}: step")
    step = _step_of(found["step"], given, parallel["dp"], f"{where}: step")
    model = _model_of(found["model"], given, f"{where}: model")
    _require_fit(parallel, order, model, where)
    stages = _stages(parallel, model, where)
    one = _ParallelSettings(parallel, order, model, step, frozenset(given), stages, relays)
    if model["parameters"] and one.spare() < 0:
        raise BadFile(
            f"{model['parameters']:,} parameters are fewer than experts and embeddings have",
            where=f"{where}: model",
            hint=f"the layers as described have {one.counted():,} in all",
        )
    return one


def _kind(key: str, default: int | str | None) -> type | tuple[type, ...]:
    if key == "parameters":
        return (int, float)
    return int if default is None else type(default)


def _spelled(table: Mapping[str, Any], where: str, label: str) -> dict[str, Any]:
    names = {other: key for _, key, _, others in _KEYS for other in others.split()}
    homes = {key: home for home, key, *_ in _KEYS}
    found: dict[str, Any] = {}
    for key, value in table.items():
        plain = key.replace("-", "_").lower()
        plain = names.get(plain, plain)
        if homes.get(plain) != label:
            known = [one for one, home in homes.items() if home == label]
            hint = suggest(key, known)
            if hint.startswith("known"):
                hint += "; or the names that Megatron-LM and Hugging Face have for these"
            if plain in homes:
                hint = f"it belongs to [{homes[plain]}]"
            raise BadFile(f"unknown key {key[:60]!r}", where=f"{where}: {label}", hint=hint)
        if plain in found:
            raise BadFile(f"{key!r} says {plain!r} a second time", where=f"{where}: {label}")
        found[plain] = value
    return found


def _require_range(key: str, value: float, where: str) -> None:
    some = ("layers", "hidden", "sequence", "top_k", "micro_batch", "micro_batches")
    least = 1 if key in (*AXES, *some) else 0
    if not least <= value <= 1 << 50 or value != int(value):
        shown = "too large" if value >= 1 << 50 else value  # Python writes no 4,300 digits
        hint = f"expected a whole number from {least}"
        raise BadFile(f"{key} is {shown}", where=where, hint=hint)


def _step_of(given: Mapping[str, Any], keys: set[str], dp: int, where: str) -> dict[str, int]:
    """Return the numbers of a step; a global batch gives the number of micro-batches."""
    step = {key: int(value) for key, value in given.items()}
    whole, each = step["global_batch"], step["micro_batch"] * dp
    if whole % each:
        raise BadFile(
            f"global_batch = {whole} is not a multiple of micro_batch · dp = {each}",
            where=where,
            hint="each of the dp ranks has the same number of micro-batches",
        )
    if whole and "micro_batches" in keys and step["micro_batches"] * each != whole:
        raise BadFile(
            f"global_batch = {whole} and micro_batch · dp = {each} make {whole // each} "
            f"micro-batches, not micro_batches = {step['micro_batches']}",
            where=where,
            hint="leave out one of the two",
        )
    return {**step, "micro_batches": whole // each if whole else step["micro_batches"]}


def _model_of(given: Mapping[str, Any], keys: set[str], where: str) -> dict[str, int]:
    m = {key: int(value) for key, value in given.items()}
    if not m["heads"] and (m["kv_heads"] or m["head_size"]):
        raise BadFile("kv_heads and head_size need heads", where=where, hint="heads = 64")
    m["heads"] = m["heads"] or 1
    m["kv_heads"] = m["kv_heads"] or m["heads"]
    if not m["head_size"] and m["hidden"] % m["heads"]:
        raise BadFile(
            f"hidden = {m['hidden']} is not a multiple of heads = {m['heads']}",
            where=where,
            hint="head_size states the size of a head",
        )
    if m["heads"] % m["kv_heads"]:
        raise BadFile(
            f"heads = {m['heads']} is not a multiple of kv_heads = {m['kv_heads']}", where=where
        )
    m["head_size"] = m["head_size"] or m["hidden"] // m["heads"]
    m["feed_forward"] = m["feed_forward"] or 4 * m["hidden"]
    m["expert_feed_forward"] = m["expert_feed_forward"] or m["feed_forward"]
    if m["experts"] and "moe_layers" not in keys:
        m["moe_layers"] = m["layers"]
    if 0 < m["experts"] < m["top_k"]:
        raise BadFile(f"top_k = {m['top_k']} is more than experts = {m['experts']}", where=where)
    if m["moe_layers"] > m["layers"]:
        raise BadFile(f"{m['moe_layers']} of {m['layers']} layers have experts", where=where)
    return m


def _require_fit(sizes: Mapping[str, int], order: str, m: Mapping[str, int], where: str) -> None:
    where = f"{where}: parallel"
    if sorted(order.split("-")) != sorted(AXES):
        raise BadFile(
            f"the order {order!r} does not name each axis once",
            where=where,
            hint=f'order = "{ORDER}"',
        )
    if sizes["dp"] % sizes["ep"]:
        raise BadFile(
            f"dp = {sizes['dp']} is not a multiple of ep = {sizes['ep']}",
            where=where,
            hint="the ranks of ep are among those of dp",
        )
    for name, axis in (("heads", "tp"), ("experts", "ep")):
        if m[name] > sizes[axis] and m[name] % sizes[axis]:
            raise BadFile(
                f"{name} = {m[name]} is not a multiple of {axis} = {sizes[axis]}",
                where=where,
                hint=f"each rank of {axis} has as many {name} as any other",
            )
    wide = m["heads"] if m["heads"] > 1 else m["hidden"]
    for axis, most, what in (
        ("tp", wide, "heads" if m["heads"] > 1 else "hidden"),
        ("cp", m["sequence"], "sequence"),
        ("pp", m["layers"], "layers"),
        ("ep", m["experts"] or sizes["ep"], "experts"),
    ):
        if sizes[axis] > most:
            raise BadFile(
                f"{axis} = {sizes[axis]} is more than {what} = {most}: ranks would have nothing",
                where=where,
            )
    ranks = prod(sizes[axis] for axis in AXES if axis != "ep")
    if ranks > LARGEST_GROUP:
        raise BadFile(f"the axes have {ranks} ranks, more than {LARGEST_GROUP}", where=where)
    groups = [ranks // sizes[axis] for axis in ("tp", "dp", "ep") if sizes[axis] > 1]
    borders = 2 * (ranks - ranks // sizes["pp"])
    placed(lambda: require_size(sum(groups) + borders, len(groups) * ranks + 2 * borders), where)


def _stages(
    sizes: Mapping[str, int], m: Mapping[str, int], where: str
) -> tuple[tuple[int, int], ...]:
    """Return the layers of each stage, and how many of them have experts.

    Where layers do not divide, stages have one fewer: the last, which has the loss, the first,
    which has the embedding, and then others from behind.
    """
    stages, layers = sizes["pp"], m["layers"]
    ends = ((0, sizes["first_stage_layers"]), (stages - 1, sizes["last_stage_layers"]))
    fixed = {at: number for at, number in ends if number}
    free = [at for at in (stages - 1, 0, *range(stages - 2, 0, -1)) if at not in fixed]
    free = list(dict.fromkeys(free))
    left = layers - sum(fixed.values())
    if left < len(free) or (left and not free):
        raise BadFile(
            f"{layers} layers do not fit pp = {stages} stages"
            + "".join(f", {number} in stage {at}" for at, number in fixed.items()),
            where=f"{where}: parallel",
            hint="first_stage_layers, last_stage_layers and a layer for each other stage",
        )
    each, short = -(-left // len(free)) if free else 0, -left % len(free) if free else 0
    counts = fixed | {at: each - (place < short) for place, at in enumerate(free)}
    found, before = [], 0
    for at in range(stages):
        after = before + counts[at]
        routed = after * m["moe_layers"] // layers - before * m["moe_layers"] // layers
        found.append((counts[at], routed))
        before = after
    return tuple(found)
