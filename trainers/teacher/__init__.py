"""Plug-ins of the kind teacher: the trajectory seen with more knowledge, as extra streams."""
