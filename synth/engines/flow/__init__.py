"""The engine ``flow``: path flows with latency, and epochs whose rounding is undone."""
