"""Bounds proved by integer prices of links and shared resources, however they were found."""
