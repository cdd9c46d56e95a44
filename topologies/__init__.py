"""Machine and fabric descriptions and measured profiles, as `*.toml`.

The folder is data. This file makes it a package, so that `importlib.resources` finds the
data in a checkout and in a wheel alike.
"""
