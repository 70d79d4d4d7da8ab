"""Errors that a user can act on. Each says what is wrong, where, what is allowed, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AgentGymError(Exception):
    """Base of every error that agentgym raises on purpose; the command line prints it without a traceback."""


class ConfigError(AgentGymError):
    """A configuration key, value or option is wrong."""


class RegistryError(AgentGymError):
    """A plug-in name cannot be resolved."""


class TaskError(AgentGymError):
    """A task id or split does not exist, or its data is missing."""


class DataError(AgentGymError):
    """A data file is missing or damaged."""


class EnvError(AgentGymError):
    """An environment was used against its contract, or its infrastructure failed (never a reward of 0)."""


class CheckpointError(AgentGymError):
    """A checkpoint is missing, damaged, or belongs to something else."""


class PolicyError(AgentGymError):
    """A policy cannot answer: endpoint down, prompt too long, model not loadable."""


class LostError(AgentGymError):
    """A process or machine that had a share of the work is gone; what it had under way is done again elsewhere."""


def did_you_mean(got: str, allowed: Iterable[str], n: int = 3) -> str:
    """Return ' Did you mean a, b?' for the closest of `allowed`, or '' when nothing is close."""
    close = difflib.get_close_matches(got, list(allowed), n=n, cutoff=0.5)
    return f" Did you mean {', '.join(map(repr, close))}?" if close else ""
