"""Program of ranks that stay for several benches: to start them takes longer than most benches."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from weft.backends.ranks.bench.job import Bench
from weft.backends.ranks.bench.ranks import attend, member_of
from weft.backends.ranks.launcher import FOUND, PLAN, leave
from weft.dsl.base.processes import end_with_owner


def serve(on: str, place: str) -> None:
    """Run one of the ranks of the job in a folder: all its benches, one after the other."""
    folder = Path(place)
    end_with_owner(folder)
    benches = [Bench.from_json(one) for one in json.loads((folder / PLAN).read_text())]
    member = member_of(on, benches[0], folder)
    rows = [attend(bench, member, lambda _: None) for bench in benches]
    if not member.rank:
        leave(folder / FOUND, rows)
    member.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
