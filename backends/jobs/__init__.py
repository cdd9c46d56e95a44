"""Jobs: pure functions over JSON, in processes that can really be stopped.

A :class:`~weft.backends.jobs.job.Job` names a function and the JSON it is given. An
:class:`~weft.backends.jobs.executor.Executor` runs jobs in processes of their own: a job that is
cancelled or late is killed with all that it started (native code of solvers cannot be interrupted),
one whose process dies is run again, and nothing else is lost. Here is the pool of one machine
(:func:`~weft.backends.jobs.local.local`), and :mod:`~weft.backends.jobs.cluster` has that of many.

A function that can be a job stands at the top of a module, takes one JSON value and returns one,
and does nothing else. It may raise a :class:`.WeftError`: the caller gets that
error, of the same class, with its place and hint.

>>> from weft.backends.jobs.local import local
>>> with local(workers=1) as pool:
...     pool.map("math:factorial", [3, 4, 5], deadline=60)
[6, 24, 120]
"""
