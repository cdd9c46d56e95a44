"""Path packings for alltoall and scatter: column generation, pricing, matchings."""
