"""Reference simulator of casts by the rule *legs*, slow and plain: no queues, no tables.

Time goes from event to event; at each one every leg that waits is looked at, in order. For
schedules of casts alone, in which all arrivals at a rank count.
"""

from collections import defaultdict
from fractions import Fraction

from weft.dsl.nouns.schedule import Schedule


def meets(s: Schedule, rows: list[tuple[int, int]], row: int) -> list[int]:
    """The legs of the cast that lead to where a leg out of a switch starts, in the same pass.

    Those behind the last one before it that left this switch and was followed by one that came.
    """
    (i, k), links = rows[row], s.topology.links
    if links[k].src < s.topology.ranks:
        return []
    found: list[int] = []
    left = False
    for other, (j, m) in enumerate(rows[:row]):
        if j == i and links[m].dst == links[k].src:
            found = [other] if left else [*found, other]
            left = False
        elif j == i and links[m].src == links[k].src:
            left = True
    return found


def slow_time(s: Schedule, size: int) -> Fraction:
    """µs until the last arrival, first come first served."""
    assert not len(s)
    assert not s.planned
    links, ranks = s.topology.links, s.topology.ranks
    grain = Fraction(size, s.collective.message_chunks * s.segments) / 1000
    rows = [(i, k) for i, one in enumerate(s.casts) for k in one.links]
    fed_by = [meets(s, rows, row) for row in range(len(rows))]
    steps = {i: one.step for i, one in enumerate(s.casts)}
    start: dict[tuple[int, int], Fraction] = {}  # (row, slice)
    last: dict[tuple[int, int], Fraction] = {}  # when its last byte is at the end of its link
    free: dict[int, Fraction] = defaultdict(Fraction)
    jobs = [(row, turn) for turn in range(s.segments) for row in range(len(rows))]

    def bytes_us(row: int) -> Fraction:
        i, k = rows[row]
        return grain * int(s.collective.grains[s.casts[i].chunk]) / links[k].bandwidth

    def leaves_us(row: int) -> Fraction:
        """Of a cast that a switch limits, as long as the limit says at least."""
        one = s.casts[rows[row][0]]
        least = grain * int(s.collective.grains[one.chunk]) / one.GBps if one.GBps else Fraction(0)
        return max(bytes_us(row), least)

    def ready(row: int, turn: int) -> Fraction | None:
        i, k = rows[row]
        need = [Fraction(0)]
        if turn:
            if (row, turn - 1) not in start:
                return None
            need.append(start[row, turn - 1] + leaves_us(row))
        for other, (j, m) in enumerate(rows):
            if links[m].dst != links[k].src:
                continue
            if links[k].src >= ranks:
                if other in fed_by[row]:
                    if (other, turn) not in start:
                        return None
                    need.append(start[other, turn] + links[m].latency)
            elif s.casts[j].chunk == s.casts[i].chunk and steps[j] < steps[i]:
                if (other, turn) not in last:
                    return None
                need.append(last[other, turn])
        return max(need)

    while len(start) < len(jobs):
        waiting = []
        for row, turn in jobs:
            if (row, turn) not in start and (at := ready(row, turn)) is not None:
                waiting.append((at, turn, row))
        # The next start: the earliest moment at which a leg is ready and its link is free.
        now = min(max(at, free[rows[row][1]]) for at, _, row in waiting)
        at, turn, row = min(w for w in waiting if max(w[0], free[rows[w[2]][1]]) <= now)
        k = rows[row][1]
        start[row, turn] = now
        free[k] = now + bytes_us(row)
        feeding = [last[other, turn] for other in fed_by[row]]
        last[row, turn] = max([now + leaves_us(row), *feeding]) + links[k].latency
    return max(last.values(), default=Fraction(0))
