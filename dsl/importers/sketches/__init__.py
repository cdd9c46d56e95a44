"""Importers of other tools' sketches: TACCL and TE-CCL rules to our sketch language."""
