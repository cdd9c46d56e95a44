"""Trees of ranks and of switches that copy or sum, and their packings."""
