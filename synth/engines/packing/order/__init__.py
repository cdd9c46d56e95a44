"""Ordering a packing's transfers into a pipelined schedule."""
