"""The engine ``intervals``: CP-SAT over one optional interval per chunk and hop."""
