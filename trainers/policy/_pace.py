"""When the next try goes out: back-off with jitter for one request, a pause for all of them when an endpoint says that it is too much."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import random
import time
from collections.abc import Mapping

LONGEST = 30.0  # seconds between two tries that nobody asked us to wait for


class Pace:
    """The clock that all requests to one endpoint share.

    backoff     seconds before the first retry, doubled each time
    per_minute  requests a minute, evenly spread; 0 = as many as there are
    """

    def __init__(self, backoff: float, per_minute: float = 0.0) -> None:
        self._backoff, self._gap = backoff, 60.0 / per_minute if per_minute else 0.0
        self._next = self._held = 0.0
        self._random = random.Random()

    def delay(self, attempt: int) -> float:
        """Return the seconds before retry `attempt` (from 0): half to all of the doubled back-off, so that many do not come back as one."""
        return min(LONGEST, self._backoff * 2.0 ** min(attempt, 30)) * self._random.uniform(0.5, 1.0)

    def hold(self, seconds: float) -> None:
        """Let nobody send for so long."""
        self._held = max(self._held, time.monotonic() + seconds)

    async def turn(self) -> None:
        """Wait until this request may be sent."""
        mine = max(time.monotonic(), self._next)
        self._next = mine + self._gap
        while (wait := max(mine, self._held) - time.monotonic()) > 0:  # the pause may grow meanwhile
            await asyncio.sleep(wait)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that an answer asks to wait (Retry-After as a number or a date); 0 where it does not, or nobody can read it."""
    text = headers.get("retry-after", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return 0.0
    now = datetime.datetime.now(datetime.UTC)
    return max(0.0, (when.replace(tzinfo=when.tzinfo or datetime.UTC) - now).total_seconds())
