"""Files of workloads, weft's own and those of other tools."""
