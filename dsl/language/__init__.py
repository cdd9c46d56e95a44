"""Sketch language: text to syntax tree, tree to canonical text, tree to rules, warnings.

The modules are ``parse``, ``format``, ``elaborate`` (rules on one machine) and ``lint`` (warnings
about legal sketches).

Nothing is imported here, so that the parser generator is loaded only for parsing.
"""
