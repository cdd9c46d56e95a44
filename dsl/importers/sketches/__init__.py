"""Importers of other tools' sketches: TACCL and TE-CCL rules to weft's sketch language."""
