"""Parser of TACCL's sketch JSON, strict (``parse_and_get_topo`` of TACCL's command line).

:mod:`.taccl_rules` translates it to weft's sketch language, :mod:`.taccl` builds its machine.
Its ranks are local: GPUs of one host. All hosts are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.errors import BadFile, UnknownName
from ..base.files import Fields
from ..base.lazy_dataclass import Frozen
from ..machines.spec import MAX_GPUS

INTRA_STRATEGIES = ("switch", "none", "minmax", "maxmin")
EVERYWHERE, SAME_PLACE = "fully-connected", "direct-map"

Lists = Mapping[int, tuple[int, ...]]
"""Lists of local ranks by local rank."""


class TacclRemark(Frozen):
    """A difference between TACCL's semantics and weft's, with the key concerned."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class TacclSketch(Frozen):
    """A sketch file. ``connections`` is a keyword where the file has one, empty for a single host.

    ``senders`` are the GPUs through which the chunks of a GPU leave (None: through any sender);
    ``rotations`` are TACCL's [offset, block]. ``remarks`` are those independent of the machine.
    """

    name: str
    where: str
    nodes: int
    strategy: str
    switches: tuple[tuple[int, ...], ...]
    peers: str
    connections: Lists | str
    senders: Lists | None
    own_first: bool
    rotations: tuple[tuple[int, int], ...]
    chunks: int
    remarks: tuple[TacclRemark, ...]

    def pairs(self, gpus: int) -> tuple[tuple[int, int], ...]:
        """Return (sender, receiver) of every connection between two hosts, as local ranks."""
        if self.connections == EVERYWHERE:
            return tuple((s, r) for s in range(gpus) for r in range(gpus))
        if self.connections == SAME_PLACE:
            return tuple((s, s) for s in range(gpus))
        assert not isinstance(self.connections, str) or not self.connections
        return tuple((s, r) for s, to in dict(self.connections or {}).items() for r in to)

    def check_ranks(self, gpus: int, machine: str) -> None:
        """Check that hosts of the machine have all GPUs that the sketch names.

        Raises:
            BadFile: an unknown GPU.
        """
        named = [
            (f"intranode_sketch.switches[{i}]", g)
            for i, one in enumerate(self.switches)
            for g in one
        ]
        for key, lists in (
            ("internode_conn", self.connections),
            ("gpus_to_sender_rev_map", self.senders),
        ):
            if isinstance(lists, Mapping):
                named += [
                    (f"internode_sketch.{key}", g)
                    for s, others in lists.items()
                    for g in (s, *others)
                ]
        for place, rank in named:
            if rank >= gpus:
                raise BadFile(
                    f"expected GPUs 0 to {gpus - 1} of a node of {machine}, got {rank}",
                    where=f"{self.where}: {place}",
                    hint="is the sketch for another machine?",
                )


def looks_like_sketch(data: Any) -> bool:
    """Return True if parsed JSON is a TACCL sketch, possibly with errors."""
    keys = {"nnodes", "intranode_sketch", "internode_sketch", "symmetry_offsets"}
    return isinstance(data, dict) and len(keys & data.keys()) >= 2 and "weft" not in data


def read_taccl_sketch(data: Any, where: str, name: str) -> TacclSketch:
    """Return the sketch of the parsed JSON; ``where`` is its file.

    Raises:
        BadFile: a key missing, unknown, or of the wrong type; ranks that contradict each other;
            several hosts without connections. UnknownName: an unknown strategy.
    """
    fields = Fields(data, where)
    remarks: list[TacclRemark] = []
    nodes = fields.get("nnodes", int)
    if not 1 <= nodes <= MAX_GPUS:
        raise BadFile(f"nnodes is {nodes}", where=where, hint="1 or more")
    strategy, switches, peers = _inside(fields, where, remarks)
    connections, senders, own_first = _between(fields, where, nodes, remarks)
    rotations = _rotations(fields, where)
    chunks = _chunks(fields, where, remarks)
    fields.finish(ignore=())
    if nodes == 1:
        remarks.append(
            TacclRemark("nnodes", "TACCL's public program stops at a single node; weft does not")
        )
    return TacclSketch(
        name,
        where,
        nodes,
        strategy,
        switches,
        peers,
        connections,
        senders,
        own_first,
        rotations,
        chunks,
        tuple(remarks),
    )


# ---- inside a node


def _inside(
    fields: Fields, where: str, remarks: list[TacclRemark]
) -> tuple[str, tuple[tuple[int, ...], ...], str]:
    place = f"{where}: intranode_sketch"
    inside = Fields(fields.get("intranode_sketch", dict), place)
    strategy = _word(inside, "strategy", INTRA_STRATEGIES, place)
    if strategy in ("minmax", "maxmin"):
        remarks.append(
            TacclRemark(
                "intranode_sketch.strategy",
                f"TACCL's program stops at {strategy!r}, which balances the load of links; read as "
                "'none': what is fast balances them too",
            )
        )
    if strategy != "switch":
        inside.finish(ignore=("switches", "switch_hyperedge_strategy"))
        return strategy, (), ""
    given = inside.get("switches", list)
    switches = tuple(_ranks(one, f"{place}.switches[{i}]") for i, one in enumerate(given))
    if not switches:
        raise BadFile("no switch is listed", where=f"{place}.switches")
    words = inside.get("switch_hyperedge_strategy", list)
    if not words or not all(isinstance(word, str) for word in words):
        raise BadFile(
            "a list of words, one for each switch, is expected",
            where=f"{place}.switch_hyperedge_strategy",
            hint='["uc-min"]',
        )
    inside.finish(ignore=())
    _check_sets(switches, place, remarks)
    _remark_words(words, remarks)
    return strategy, tuple(dict.fromkeys(switches)), words[0]


def _check_sets(
    switches: tuple[tuple[int, ...], ...], place: str, remarks: list[TacclRemark]
) -> None:
    """Check that sets are disjoint, or identical: planes of one switch."""
    for i, one in enumerate(switches):
        if len(one) < 2:
            raise BadFile("a switch joins two GPUs or more", where=f"{place}.switches[{i}]")
        for k, other in enumerate(switches[:i]):
            if set(one) & set(other) and set(one) != set(other):
                shared = min(set(one) & set(other))
                raise BadFile(
                    f"GPU {shared} is in switches[{k}] too",
                    where=f"{place}.switches[{i}]",
                    hint="sets are disjoint, or the same",
                )
    for one in dict.fromkeys(switches):
        planes = switches.count(one)
        if planes > 1:
            remarks.append(
                TacclRemark(
                    "intranode_sketch.switches",
                    f"the same set is listed {planes} times: TACCL takes {planes} lanes, "
                    f"each {planes} times as fast, so {planes * planes} times the bandwidth; "
                    "here these planes share the bandwidth of the port",
                )
            )


def _remark_words(words: list[str], remarks: list[TacclRemark]) -> None:
    place = "intranode_sketch.switch_hyperedge_strategy"
    if words[0] not in ("uc-min", "uc-max"):
        remarks.append(
            TacclRemark(
                place,
                f"{words[0]!r} is neither 'uc-min' nor 'uc-max': TACCL then sets no objective "
                "at all, not even time; here it is ignored, and time counts as always",
            )
        )
    if len(set(words)) > 1:
        remarks.append(TacclRemark(place, "TACCL uses only the first word, and so does weft"))


# ---- between nodes


def _between(
    fields: Fields, where: str, nodes: int, remarks: list[TacclRemark]
) -> tuple[Lists | str, Lists | None, bool]:
    if nodes == 1:
        if fields.get("internode_sketch", dict, None) is not None:
            remarks.append(TacclRemark("internode_sketch", "there is one node: not used"))
        return "", None, False
    place = f"{where}: internode_sketch"
    between = Fields(fields.get("internode_sketch", dict), place)
    _word(between, "strategy", ("relay",), place)
    given = between.get("internode_conn", (dict, str))
    connections = _connections(given, f"{place}.internode_conn")
    relays = between.get("gpus_to_sender_rev_map", dict, None)
    senders = None
    if relays is not None:
        senders = _senders(relays, connections, f"{place}.gpus_to_sender_rev_map")
    own_first = between.get("enforce_ordering", bool, False)
    if between.get("beta_split", dict, None) is not None:
        remarks.append(
            TacclRemark(
                "internode_sketch.beta_split",
                "of older versions of TACCL, which now computes it; not used",
            )
        )
    between.finish(ignore=())
    return connections, senders, own_first


def _connections(given: Any, place: str) -> Lists | str:
    if isinstance(given, str):
        if given not in (EVERYWHERE, SAME_PLACE):
            raise UnknownName("word", given, (EVERYWHERE, SAME_PLACE), where=place)
        return given
    found = _lists(given, place)
    if not found:
        raise BadFile("no GPU sends to another node", where=place, hint='{"0": [1]}')
    counts = {sender: len(to) for sender, to in found.items()}
    first = next(iter(counts))
    for sender, count in counts.items():
        if count != counts[first]:
            raise BadFile(
                f"sender {sender} has {count} receivers, sender {first} has {counts[first]}",
                where=place,
                hint="TACCL wants the same number for every sender",
            )
    return found


def _senders(given: Any, connections: Lists | str, place: str) -> Lists:
    through: dict[int, tuple[int, ...]] = {}
    for sender, sources in _lists(given, place).items():
        if isinstance(connections, Mapping) and sender not in connections:
            raise BadFile(
                f"GPU {sender} sends nothing to other nodes",
                where=place,
                hint="name a sender of internode_conn",
            )
        for source in sources:
            through[source] = (*through.get(source, ()), sender)
    return dict(sorted(through.items()))


# ---- other keys


def _rotations(fields: Fields, where: str) -> tuple[tuple[int, int], ...]:
    found = []
    for i, one in enumerate(fields.get("symmetry_offsets", list)):
        place = f"{where}: symmetry_offsets[{i}]"
        if not isinstance(one, list) or len(one) != 2 or not all(map(_is_rank, one)):
            raise BadFile(
                "a pair [offset, block] of numbers is expected",
                where=place,
                hint="[2, 16] moves every rank by 2 in blocks of 16",
            )
        if one[1] < 1:
            raise BadFile(f"a block of {one[1]} ranks", where=place)
        found.append((one[0], one[1]))
    return tuple(found)


def _chunks(fields: Fields, where: str, remarks: list[TacclRemark]) -> int:
    place = f"{where}: hyperparameters"
    inside = Fields(fields.get("hyperparameters", dict), place)
    chunks = inside.get("input_chunkup", int)
    if not 1 <= chunks <= 1 << 16:
        raise BadFile(f"input_chunkup is {chunks}", where=place, hint="1 or more")
    if inside.get("heuristic", int, None) is not None:
        remarks.append(
            TacclRemark(
                "hyperparameters.heuristic",
                "of older versions of TACCL, which now chooses it; not used",
            )
        )
    inside.finish(ignore=())
    return int(chunks)


def _word(fields: Fields, key: str, known: tuple[str, ...], place: str) -> str:
    word = fields.get(key, str)
    if word not in known:
        raise UnknownName(key, word, known, where=place)
    return str(word)


def _lists(given: Any, place: str) -> dict[int, tuple[int, ...]]:
    found = {}
    for key, values in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 9):
            raise BadFile(f"the key {key!r} is not a local rank", where=place, hint='"0", "1", …')
        if int(key) in found:
            raise BadFile(f"GPU {int(key)} is listed twice", where=place)
        found[int(key)] = _ranks(values, f"{place}[{key!r}]")
    return found


def _ranks(values: Any, place: str) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(map(_is_rank, values)):
        raise BadFile("a list of local ranks is expected", where=place, hint="[0, 1]")
    if len(set(values)) < len(values):
        twice = next(v for v in values if values.count(v) > 1)
        raise BadFile(f"GPU {twice} is listed twice", where=place)
    if not values:
        raise BadFile("no GPU is named", where=place)
    return tuple(values)


def _is_rank(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_GPUS
