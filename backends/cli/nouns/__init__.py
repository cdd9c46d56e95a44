"""Kinds of files that verbs act on: recognized, checked, shown, timed."""
