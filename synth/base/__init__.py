"""The engine interface (budget, outcome, point, certificate) and helpers that every engine uses."""
