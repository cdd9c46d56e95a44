"""A program as columns, for the checkers and the interpreter."""
