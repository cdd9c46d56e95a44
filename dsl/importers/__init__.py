"""Importers of machine descriptions of other programs, one file per format.

:mod:`.recognized` finds the one for a text. It loads all, which takes 50 ms: only for files.
"""
