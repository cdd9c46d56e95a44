"""Plans of whole workloads: routes (joint) and times (ordering) together, with engines."""
