"""The program checker: limits, bounds, connections, waits, deadlock and races.

It knows nothing of how a program was made; it judges an XML file or a Program through one
common form, the :class:`~weft.dsl.nouns.program.Code`.
"""
