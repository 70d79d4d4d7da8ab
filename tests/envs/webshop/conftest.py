"""Fixtures of the WebShop tests: the real small data set and the recordings, where there are any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def webshop_data(shared: Callable[[str, str], Path]) -> Path:
    """The folder with the 1,000 real products and `transcripts/`."""
    return shared("data/webshop", "WebShop data")
