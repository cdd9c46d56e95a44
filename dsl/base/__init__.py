"""Helpers without knowledge of collectives: errors, units, files, option specs, registries."""
