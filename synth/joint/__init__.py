"""Several collectives at once: the least time for all of them together, and schedules that take it.

:mod:`.demands` says what each collective asks of the machine, :mod:`.bound` finds the least time
with its proof, :mod:`.partition` shares the machine out, :mod:`.merge` joins the schedules.
"""
