"""The formats artefacts are written in and read from, one folder or file each."""
