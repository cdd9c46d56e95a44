"""Lowering of programs to MSCCL++ execution plans."""
