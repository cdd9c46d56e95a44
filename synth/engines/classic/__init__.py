"""Classic algorithms, written on the builder, each with its cost formula and source."""
