"""The passes: schedule to flow, flow to program, program to program; one file each."""
