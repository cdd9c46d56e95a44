"""Writing algorithms in Python: the builder, its contribution check, recipes and their files."""
