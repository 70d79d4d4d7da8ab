"""Sizes and devices, one YAML each, to go on top of a task set: see ../SCALING.md."""
