"""Objectives and the latency/bandwidth Pareto frontier of the points found so far."""
