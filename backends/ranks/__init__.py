"""Run emitted files on ranks that are processes (MPI, torch) or threads, and compare and time them.

A **job** (:mod:`.job`) lists calls and their data. :mod:`.rank` runs it on one rank, the same on
every runtime; :mod:`.mpi`, :mod:`.torch` and :mod:`.threads` connect the ranks.
:mod:`.launcher` starts processes, watches them and ends them, :mod:`.joined` is for ranks that
``mpiexec``, ``srun`` or ``torchrun`` started. :mod:`.verdict` makes results or one error of the
reports.
"""
