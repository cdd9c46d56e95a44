"""The MSCCL++ execution plan as a value: reader, writer and order of operations."""
