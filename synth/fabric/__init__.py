"""A topology as arrays: numbered links and shared resources with exact capacities and routes."""
