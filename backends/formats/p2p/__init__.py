"""Point-to-point programs: rounds of sends and receives that any message-passing runtime runs.

A **script** (:mod:`.model`) lists the messages and the work of every rank, round by round.
:mod:`.compile` makes it from the compiler's flow, :mod:`.check` proves it, :mod:`.emit` writes it
as one Python file for MPI, torch.distributed or NCCL, and :mod:`.embedded` are the runtimes, each
behind one interface.
"""
