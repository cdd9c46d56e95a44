"""Why not: rules that exclude each other, what a rule costs, what a schedule waits for."""
