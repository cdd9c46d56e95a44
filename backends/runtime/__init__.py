"""Limits and payloads of the runtimes that programs are compiled for and judged by."""
