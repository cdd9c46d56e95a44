"""Which devices ranks of torch use, by what the host has: not seen here, so told by stand-ins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.backends.ranks.torch import takes_gpus


@pytest.mark.parametrize(
    ("gpus", "nccl", "ranks", "taken"),
    [(0, True, 2, False), (1, True, 2, False), (2, True, 2, True), (8, False, 2, False)],
)
def test_ranks_that_would_share_a_gpu_use_the_host(
    gpus: int, nccl: bool, ranks: int, taken: bool
) -> None:
    """Four ranks on one H200 ended in "Duplicate GPU detected"."""
    cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    dist = SimpleNamespace(is_nccl_available=lambda: nccl)
    assert takes_gpus(SimpleNamespace(cuda=cuda), dist, ranks) is taken
