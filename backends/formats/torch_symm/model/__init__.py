"""Execution of an emitted kernel's own text under a model of weak memory."""
