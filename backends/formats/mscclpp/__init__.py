"""MSCCL++ execution plans: written from programs, read, checked, and executed on NumPy data."""
