"""Measure on one GPU what the runtime model says of thread blocks and of calls.

    python tests/gpu/measure_blocks.py [--json]

1. GB/s that one thread block copies, sums (two arrays into a third) and packs into LL's packets
   (4 bytes of data, 4 of flag), alone and beside others, by its threads, in global memory.
2. µs of a call: kernels that do nothing, each waited for, one after the other, and in a CUDA graph.

Nothing of it is between GPUs. Exit code 0; 4: there is no GPU, or no CuPy.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

KERNELS = r"""
#define KERNEL extern "C" __global__ void __launch_bounds__(1024)
#define MANY 4
#define BLOCK(T) a += blockIdx.x * count; b += blockIdx.x * count; out += blockIdx.x * count; \
  for (long first = threadIdx.x; first < count; first += MANY * blockDim.x) { T x[MANY], y[MANY];
#define EACH(what) _Pragma("unroll") for (int k = 0; k < MANY; k++) { \
    long i = first + k * blockDim.x; if (i < count) what; }
KERNEL copy(const uint4* a, const uint4* b, uint4* out, long count) {
  BLOCK(uint4) EACH(x[k] = a[i]) EACH(out[i] = x[k]) }
}
KERNEL sum(const float4* a, const float4* b, float4* out, long count) {
  BLOCK(float4) EACH((x[k] = a[i], y[k] = b[i]))
  EACH((out[i] = make_float4(x[k].x + y[k].x, x[k].y + y[k].y, x[k].z + y[k].z, x[k].w + y[k].w))) }
}
KERNEL pack(const uint2* a, const uint2* b, uint4* out, long count) {
  BLOCK(uint2) EACH(x[k] = a[i]) EACH((out[i] = make_uint4(x[k].x, 7, x[k].y, 7))) }
}
KERNEL nothing() {}
"""
"""Each thread loads several words before it stores any: what a block moves is what is under way."""

PAYLOAD = {"copy": 16, "sum": 16, "pack": 8}
"""Bytes of data that a turn of a thread's loop makes."""

PART = 8 << 20
"""Bytes of data for each thread block: all of them together do not fit in the cache."""

REPEATS = 20


def event_us(cupy: Any, action: Callable[[], Any]) -> float:
    """Return the median µs between events around an action, after two that warm up."""
    found = []
    for turn in range(REPEATS + 2):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        action()
        end.record()
        end.synchronize()
        if turn > 1:
            found.append(1e3 * cupy.cuda.get_elapsed_time(begin, end))
    return statistics.median(found)


def rates(cupy: Any, module: Any) -> list[dict[str, Any]]:
    """Return GB/s of data per thread block, by what it does, blocks and threads."""
    rows: list[dict[str, Any]] = []
    for blocks in (1, 8, 24, 132):
        memory = [cupy.zeros(2 * blocks * PART, "uint8") for _ in range(3)]
        for (name, size), threads in product(PAYLOAD.items(), (256, 512, 1024)):
            kernel = module.get_function(name)
            call = partial(kernel, (blocks,), (threads,), (*memory, PART // size))
            rate = PART / event_us(cupy, call) / 1e3
            rows.append({"does": name, "blocks": blocks, "threads": threads, "GB/s": rate})
        del memory
    return rows


def calls(cupy: Any, module: Any) -> dict[str, float]:
    """Return µs per call of a kernel that does nothing, by how it is called."""
    kernel = module.get_function("nothing")
    stream = cupy.cuda.Stream(non_blocking=True)
    many = 1000

    def waited() -> None:
        kernel((1,), (32,), (), stream=stream)
        stream.synchronize()

    def in_turn() -> None:
        for _ in range(many):
            kernel((1,), (32,), (), stream=stream)
        stream.synchronize()

    with stream:
        stream.begin_capture()
        for _ in range(many):
            kernel((1,), (32,), (), stream=stream)
        graph = stream.end_capture()

    def replayed() -> None:
        graph.launch(stream)
        stream.synchronize()

    return {
        "launched and waited for": 1e6 * seconds(waited, 200),
        "launched one after the other": 1e6 * seconds(in_turn, 5) / many,
        "in a graph": 1e6 * seconds(replayed, 5) / many,
    }


def seconds(action: Callable[[], Any], times: int) -> float:
    """Return the median seconds of an action, after three that warm up."""
    found = []
    for turn in range(times + 3):
        begin = time.perf_counter()
        action()
        if turn > 2:
            found.append(time.perf_counter() - begin)
    return statistics.median(found)


def main() -> int:
    """Measure all, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    try:
        import cupy
    except ImportError:
        sys.stderr.write("Nothing was measured: CuPy is not installed\n")
        return 4
    if not cupy.cuda.is_available():
        sys.stderr.write("Nothing was measured: CuPy sees no GPU\n")
        return 4
    module = cupy.RawModule(code=KERNELS)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    found = {"gpu": name, "blocks": rates(cupy, module), "calls": calls(cupy, module)}
    if args.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    sys.stdout.write(f"{name}\ndoes  blocks  threads  GB/s of a block  of all\n")
    for row in found["blocks"]:
        rate, blocks = row["GB/s"], row["blocks"]
        how = f"{row['does']:<5} {blocks:>6} {row['threads']:>8}"
        sys.stdout.write(f"{how} {rate:>16.1f} {rate * blocks:>7.0f}\n")
    for how, us in found["calls"].items():
        sys.stdout.write(f"a kernel that does nothing, {how}: {us:.2f} µs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
