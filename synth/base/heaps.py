"""Kernels of a binary heap: two arrays, of keys and of what they belong to, the least key first."""

from __future__ import annotations

from weft.dsl.base.jit import Array, compiled


@compiled
def push(keys: Array, items: Array, size: int, key: float, item: int) -> int:
    """Add an item to a heap of ``size``; return the new size."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if keys[up] <= key:  # of equal keys the older stays above
            break
        keys[at] = keys[up]
        items[at] = items[up]
        at = up
    keys[at] = key
    items[at] = item
    return size + 1


@compiled
def pop(keys: Array, items: Array, size: int) -> int:
    """Remove the least, which the caller has read at place 0; return the new size."""
    size -= 1
    key, item = keys[size], items[size]
    at = 0
    while True:
        low = 2 * at + 1  # the lesser child; of equal ones the left
        if low >= size:
            break
        if low + 1 < size and keys[low + 1] < keys[low]:
            low += 1
        if keys[low] >= key:
            break
        keys[at] = keys[low]
        items[at] = items[low]
        at = low
    keys[at] = key
    items[at] = item
    return size
