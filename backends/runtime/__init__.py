"""The runtimes that programs are compiled for and judged by: their limits and payloads."""
