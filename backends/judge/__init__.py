"""Shared parts of checkers and executors of programs: events and values."""
