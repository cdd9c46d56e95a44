"""A wrong algorithm: rank 0 never gets what rank 2 has."""

from weft import Allgather, program


@program(lambda: Allgather(3))
def forgets(p):
    p.chunk(0, 0).copy_to(rank=1).copy_to(rank=2)
    p.chunk(1, 1).copy_to(rank=0)
    p.chunk(1, 1).copy_to(rank=2)
    p.chunk(2, 2).copy_to(rank=1)
