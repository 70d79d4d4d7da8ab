"""A corridor with a key and a door: a tiny deterministic text game for tests and for the examples."""

from .env import toy

__all__ = ["toy"]
