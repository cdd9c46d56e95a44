"""Helpers independent of collectives: errors, units, files, option specs, registries."""
