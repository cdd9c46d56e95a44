"""Finding a schedule: bounds, engines, reductions, the verifier and the simulator.

An engine turns a problem into an outcome and checks nothing; the verifier is independent of it.
This folder imports `weft.dsl` only, and loads a solver only inside the engine that uses it.
"""
