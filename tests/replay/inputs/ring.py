"""A ring by hand: every chunk goes round and is summed, then the sums go round."""

from weft import Allreduce, program


@program(lambda ranks=4: Allreduce(ranks, chunks=ranks))
def ring(p):
    n = p.ranks
    for step in range(n - 1):
        for r in range(n):
            p.chunk(r, (r - step) % n).reduce_into(rank=(r + 1) % n)
    for step in range(n - 1):
        for r in range(n):
            p.chunk(r, (r + 1 - step) % n).copy_to(rank=(r + 1) % n)
