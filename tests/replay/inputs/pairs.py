"""A collective of our own: every even rank wants what its right neighbour has."""

from weft import custom

ranks = 4
collective = custom(
    "pairs",
    ranks,
    pre=[(r, r, [r], 0) for r in range(ranks)],
    post=[(r, r + 1, [r + 1], 0) for r in range(0, ranks, 2)],
)
