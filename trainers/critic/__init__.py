"""Plug-ins of the kind critic: what a state is worth."""
