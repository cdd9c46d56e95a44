"""Packings of machines of several hosts: inside hosts, and between them."""
