"""Settings of the search of the engine ``greedy``."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ...base.effort import Effort, setting


@dataclass(frozen=True, slots=True)
class GreedyEffort(Effort):
    """Cuts that are tried, how long each one is improved, and when a plan is good enough."""

    pieces: tuple[int, ...] = setting(
        (1, 2, 4, 8, 16, 32, 64),
        "chunks that a rank's part is cut into, one after the other until plans get slower",
    )
    joint_pieces: tuple[int, ...] = setting(
        (1, 4, 16, 64, 256), "the same for the whole buffer of an allreduce"
    )
    most_transfers: int = setting(
        400_000,
        "transfers above which finer chunks are not tried; an explicit number of chunks is made",
    )
    bandwidth_bytes: int = setting(
        1 << 30, "bytes of the message that the objectives bandwidth and frontier are judged at"
    )
    latency_bytes: int = setting(
        1 << 10, "bytes of the message that the objective latency is judged at"
    )
    enough: float = setting(1.0005, "a plan of less than this times the bound ends the search")
    enough_of_many: float = setting(
        1.02, "the same for plans above most-transfers, each of which takes seconds"
    )
    slower: float = setting(
        1.05, "a cut whose plan takes more than this times the best time is the last one"
    )
    steady_seeds: int = setting(
        8, "further seeds, at most, while longer latencies make the best plan clearly slower"
    )
    passes: int = setting(24, "times that all trees are torn up and grown again, at most")
    idle_passes: int = setting(4, "passes in a row without gain that end the growing of trees")
    depths: tuple[float, ...] = setting(
        (0.02, 0.3), "prices of a level of a tree of an allreduce, as parts of the price of a hop"
    )
    joint_trees: int = setting(
        64, "different trees of an allreduce, at most; further chunks use them again"
    )
    turns: int = setting(16, "times that a plan is served backwards and forwards again, at most")
    idle_turns: int = setting(3, "turns in a row without gain that end this")
    compared: int = setting(
        2,
        "chunks that a free link compares; more change nothing measurable (32×32 torus: 257 steps "
        "with 1, 2, 8 and 64, the bound is 256) and cost time",
    )
