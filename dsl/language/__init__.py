"""The sketch language: text to syntax tree (``parse``), tree to canonical text (``format``), tree
to rules on one machine (``elaborate``), and what looks wrong though it is legal (``lint``).

Nothing is imported here, so that the parser generator is loaded only by who parses.
"""
