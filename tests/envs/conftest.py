"""Fixtures of all environments' tests: a cache of their own, and the shared data, where there are any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared() -> Callable[[str, str], Path]:
    """Return a function: the folder of that name below $AGENTGYM_SHARED, or below ../shared of the repository; without it the test is skipped."""
    places = [Path(os.environ["AGENTGYM_SHARED"])] if "AGENTGYM_SHARED" in os.environ else []
    places += [parent.parent / "shared" for parent in Path(__file__).resolve().parents[2:4]]

    def find(folder: str, what: str) -> Path:
        for place in places:
            if (place / folder).is_dir():
                return place / folder
        pytest.skip(f"no {what} in {' or '.join(map(str, places))}; set AGENTGYM_SHARED")

    return find
