"""Reductions: steps that change a problem and know how to change its answer back."""
