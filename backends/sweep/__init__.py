"""Sweeps: many searches as one list of jobs, with stored results.

:mod:`.question` is one of them as a value with a key, :mod:`.body` answers it in a process of its
own, :mod:`.cache` keeps answers by key, :mod:`.folder` is a sweep's output, and
:mod:`.run` goes through the list. Reading names and files into questions is the command line's.
"""
