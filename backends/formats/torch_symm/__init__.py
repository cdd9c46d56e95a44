"""Programs for torch symmetric memory: a Triton kernel that reads the tables of a plan."""
