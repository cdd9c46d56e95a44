"""What emitted files do inside JAX, on four devices of the host: one line of JSON of facts.

A process of its own, because the number of devices must be told before JAX starts. Arguments: files
of an allgather, a reduce_scatter and an allreduce of four ranks, and an allreduce of two.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from weft.backends.formats.p2p.execute import loaded

jax.config.update("jax_disable_most_optimizations", True)  # they take most of the time

ROW = Mesh(np.array(jax.devices()[:4]), ("x",))
TABLE = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("y", "x"))


def mapped(function: Callable[[Any], Any], mesh: Mesh, spec: P, *, vma: bool = False) -> Any:
    """A function of one device's array, of all of them; compiled, since it is slow otherwise."""
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=vma))


def data(*shape: int) -> Any:
    """Numbers of all sizes."""
    return jax.random.normal(jax.random.key(0), shape, jnp.float32)


def apart(a: Any, b: Any) -> float:
    """The largest difference."""
    return float(jnp.abs(a - b).max())


def refused(call: Callable[[], Any]) -> str:
    """The error of a call."""
    try:
        call()
    except (TypeError, ValueError) as error:
        return str(error)
    return "no error"


def facts(gather: Any, scatter: Any, reduce: Any, two: Any) -> dict[str, Any]:
    """Everything that is looked at."""
    row = P("x")
    ours = {
        name: partial(one.collective, axis_name="x")
        for name, one in (("gather", gather), ("scatter", scatter))
    }
    gathered, scattered = (mapped(ours[name], ROW, row) for name in ("gather", "scatter"))
    pull_gather = jax.jit(lambda x, c: jax.vjp(gathered, x)[1](c)[0])
    pull_scatter = jax.jit(lambda x, c: jax.vjp(scattered, x)[1](c)[0])
    small, large = data(4 * 5), data(4 * 4 * 5)
    whole = mapped(partial(reduce.collective, axis_name=("y", "x")), TABLE, P(("y", "x")))
    half = mapped(partial(two.collective, axis_name="x"), TABLE, P(("y", "x")), vma=True)
    x = data(4, 3, 7)
    sums = x.sum(axis=0, keepdims=True)
    halves = x.reshape(2, 2, 3, 7).sum(axis=1, keepdims=True)
    given = jax.device_put(data(4 * 6), NamedSharding(ROW, row))
    jax.block_until_ready(
        jax.jit(mapped(partial(reduce.collective, axis_name="x"), ROW, row), donate_argnums=0)(
            given
        )
    )
    return {
        "gather_pulls_back_as_reduce_scatter": apart(pull_gather(small, large), scattered(large)),
        "scatter_pulls_back_as_allgather": apart(pull_scatter(large, small), gathered(small)),
        "two_axes": apart(whole(x), jnp.broadcast_to(sums, x.shape)),
        "one_of_two_axes": apart(half(x), jnp.broadcast_to(halves, (2, 2, 3, 7)).reshape(x.shape)),
        "maximum": apart(
            mapped(partial(two.collective, axis_name="x", op="max"), TABLE, P(("y", "x")))(x),
            jnp.broadcast_to(
                x.reshape(2, 2, 3, 7).max(axis=1, keepdims=True), (2, 2, 3, 7)
            ).reshape(x.shape),
        ),
        "donated": bool(given.is_deleted()),
        "other_axis": refused(lambda: mapped(ours["gather"], TABLE, P(("y", "x")))(small)),
        "no_operator": refused(
            lambda: mapped(partial(reduce.collective, axis_name="x"), ROW, row)(small > 0)
        ),
        "no_order": refused(
            lambda: mapped(partial(reduce.collective, axis_name="x", op="max"), ROW, row)(
                small.astype(jnp.complex64)
            )
        ),
        "unknown_operator": refused(
            lambda: mapped(partial(reduce.collective, axis_name="x", op="xor"), ROW, row)(small)
        ),
        "no_multiple": refused(lambda: scattered(small)),
    }


if __name__ == "__main__":
    print(json.dumps(facts(*(loaded(Path(name).read_text("utf-8")) for name in sys.argv[1:]))))
