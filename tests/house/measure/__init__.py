"""Structural figures of a checkout, each measured by one small function."""
