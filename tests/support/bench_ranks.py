"""Program of ranks that stay for several benches: to start them takes longer than most benches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.backends.ranks.bench.job import Bench
from weft.backends.ranks.bench.ranks import attend
from weft.backends.ranks.joined import world_of
from weft.backends.ranks.launcher import take_part


def serve(on: str, plan: Any, folder: Path, _: object) -> Iterator[Any]:
    """Run one of the ranks of the job in a folder: all its benches, one after the other."""
    benches = [Bench.from_json(one) for one in plan]
    world = world_of(on, benches[0].timeout, folder, benches[0].units.ranks)
    rows = [attend(bench, world, lambda _: None) for bench in benches]
    yield None if world.rank else rows
    world.close()


if __name__ == "__main__":
    take_part(serve)
