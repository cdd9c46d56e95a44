"""Algorithms written in Python: builder, contribution check, recipes and their files."""
