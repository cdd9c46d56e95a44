"""Tree packings: column generation, pricing, rounding to shares."""
