"""TACCL's topology and sketch files, written from the documented format and from what they say.

A topology file describes one host by what one chunk costs, in a time unit of its own; a sketch says
how many hosts there are, who talks to whom between them, and what is symmetric.
"""

from typing import Any

UNITS = {"1KB": (1 / 1024, 0.01), "32KB": (1 / 32, 0.1), "1MB": (1.0, 1.0)}
"""MiB of a chunk, and µs of the time unit."""


def host(name: str, size: str, gpus: int, nics: int, per_mib: tuple[float, ...]) -> dict[str, Any]:
    """A host whose links need ``per_mib`` µs for a MiB; α is 0.3 µs, 2.6 µs over a NIC."""
    mib, unit = UNITS[size]

    def cost(us_per_mib: float) -> float:
        return round(us_per_mib * mib / unit, 2)

    alpha, remote = round(0.3 / unit, 2), round(2.6 / unit, 2)
    return {
        "name": f"{name}_{size}",
        "gpus_per_node": gpus,
        "nics_per_node": nics,
        "alpha": alpha,
        "node_betas_list": [cost(us) for us in per_mib],
        "node_invbws_list": [alpha + cost(us) for us in per_mib],
        "remote_alpha": remote,
        "remote_beta": cost(105),
        "remote_invbw": remote + cost(105),
    }


TOPOLOGIES = {
    **{f"topo-dgx2-{size}": host("DGX2", size, 16, 8, (8,)) for size in ("1KB", "1MB")},
    **{f"topo-ndv2-{size}": host("NDv2", size, 8, 1, (23, 46)) for size in UNITS},
}


def sketch(
    nodes: int, turns: list[list[int]], *, chunks: int = 1, peers: str = "", between: object = None
) -> dict[str, Any]:
    """A sketch of NDv2 hosts; of DGX-2 hosts, whose switch is used with few or many ``peers``."""
    inside: dict[str, Any] = {"strategy": "none"}
    if peers:
        inside = {
            "strategy": "switch",
            "switches": [list(range(16))],
            "switch_hyperedge_strategy": [peers],
        }
    made = {"nnodes": nodes, "intranode_sketch": inside}
    if nodes > 1:
        found = between if isinstance(between, dict) else {"internode_conn": between}
        made["internode_sketch"] = {"strategy": "relay", **found}
    return made | {"symmetry_offsets": turns, "hyperparameters": {"input_chunkup": chunks}}


RELAY = {"internode_conn": {"0": [1]}}
"""Only GPU 0 sends to other hosts, and only GPU 1 receives."""

PAIRS = {
    "internode_conn": {str(2 * p + 1): [2 * p] for p in range(8)},
    "gpus_to_sender_rev_map": {str(2 * p + 1): [2 * p, 2 * p + 1] for p in range(8)},
    "enforce_ordering": True,
}
"""Odd GPUs send for their pair, their own data first; even GPUs receive."""

OWN = {"internode_conn": "direct-map", "gpus_to_sender_rev_map": {str(g): [g] for g in range(16)}}
"""Every GPU sends its own data to the GPU of its number."""

SKETCHES = {
    "sk1-ndv2-n1": sketch(1, []),
    "sk-ndv2-n1-cUp6": sketch(1, [], chunks=6),
    "sk1-ndv2-n2": sketch(2, [[8, 16]], between=RELAY),
    "sk1-ndv2-n4": sketch(4, [[8, 32]], between=RELAY),
    "sk2-ndv2-n2": sketch(2, [[8, 16]], between="fully-connected"),
    "sk2-ndv2-n4": sketch(4, [[8, 32]], between="fully-connected"),
    "sk3-ndv2-n2": sketch(2, [[8, 16]], between="direct-map"),
    "sk1-dgx2-n1": sketch(1, [[2, 16]], peers="uc-min"),
    "sk-dgx2-n1": sketch(1, [[2, 16]], chunks=2, peers="uc-min"),
    "sk1-dgx2-n2": sketch(2, [[2, 16], [16, 32]], chunks=2, peers="uc-min", between=PAIRS),
    "sk2-dgx2-n2": sketch(2, [[2, 16], [16, 32]], peers="uc-max", between=OWN),
}
