"""Search-QA: answer questions by searching a corpus. `searchqa` is the environment's class, imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .env import SearchQAEnv as searchqa

__all__ = ["searchqa"]


def __getattr__(name: str) -> Any:
    if name == "searchqa":
        from .env import SearchQAEnv

        return SearchQAEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
