"""The emitters: program to the text a runtime reads."""
