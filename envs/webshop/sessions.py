"""Sessions of the server: which task each name has, and the little that is kept of it. Where a session stands, each address says itself."""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from agentgym.errors import ConfigError, TaskError

from .address import BadAddress
from .goals import Goals
from .shop import Session, Shop
from .tasks import Tasks
from .types import Goal, Page, Place

_REMEMBERED = 200  # products that a session is known to have visited; after so many it begins anew
_FIXED = re.compile(r"fixed_([0-9]+)")


@dataclass(slots=True)
class Visitor:
    """What the server keeps of a session; where it stands, each address says itself.

    goal  makes the goal: it is not kept, so that 100,000 sessions are small
    """

    shop: Shop
    goals: Goals
    goal: Callable[[], Goal]
    visited: frozenset[str] = frozenset()
    reward_info: dict[str, Any] | None = None
    seen: float = field(default_factory=time.monotonic)

    def open(self, at: Place) -> Page:
        """Go to a place and return its page; a purchase is scored. Raises BadAddress where the shop has no such product or option."""
        if at.asin:
            _check(self.shop, at)
        session = Session(self.shop, self.goals, self.goal())
        session.visited = self.visited
        session.go(at)
        self.visited = session.visited if len(session.visited) <= _REMEMBERED else frozenset({at.asin})
        self.reward_info = session.reward_info or self.reward_info
        return session.page


def _check(shop: Shop, at: Place) -> None:
    """Refuse a product that there is not, and an option that it does not have: else an address could earn what no click can."""
    row = shop.catalogue.row(at.asin)
    if row is None:
        raise BadAddress(404, f"there is no product {at.asin!r} among the {len(shop.catalogue):,} of this shop")
    options = shop.catalogue.product(row).options
    for name, value in at.options:
        if name not in options:
            raise BadAddress(400, f"{at.asin} has no option {name!r:.60}; {_some('its options are', options)}")
        if value not in options[name]:
            raise BadAddress(400, f"{at.asin} cannot be had with {name} = {value!r:.60}; {_some('there are', options[name])}")


def _some(said: str, names: Collection[str]) -> str:
    if not names:
        return "it has none"
    return f"{said} {', '.join(map(repr, itertools.islice(names, 20)))}{' …' if len(names) > 20 else ''}"


class Sessions:
    """Sessions by name. `new` makes the one of a name that is not there (None: that is an error).

    limit  how many there may be; then the one that was not used for the longest time goes
    idle   seconds after which a session that nobody used goes
    """

    def __init__(self, new: Callable[[str], Visitor] | None, *, limit: int = 100_000, idle: float = 3600.0) -> None:
        if limit < 1 or not idle > 0:
            raise ConfigError(f"WebShop server: limit={limit}, idle={idle}: there must be room for a session, and time to use it")
        self.new, self.limit, self.idle = new, limit, idle
        self._all: OrderedDict[str, Visitor] = OrderedDict()  # the one used last is last

    def __len__(self) -> int:
        return len(self._all)

    def find(self, sid: str) -> Visitor:
        """Return the session of a name. Raises BadAddress where it cannot be."""
        now = time.monotonic()
        while self._all and next(iter(self._all.values())).seen < now - self.idle:
            self._all.popitem(last=False)
        found = self._all.get(sid)
        if found is None:
            if self.new is None:
                raise BadAddress(404, f"there is no session {sid!r}")
            found = self.new(sid)
            self.add(sid, found)
        found.seen = now
        self._all.move_to_end(sid)
        return found

    def add(self, sid: str, visitor: Visitor) -> None:
        """Add a session."""
        self._all[sid] = visitor
        if len(self._all) > self.limit:
            self._all.popitem(last=False)

    def remove(self, sid: str) -> None:
        """Forget a session, if it is there."""
        self._all.pop(sid, None)


def choose(tasks: Tasks, sid: str) -> tuple[Goals, int]:
    """Return the task that a session's name stands for. Raises TaskError where it names one that is not there."""
    if fixed := _FIXED.search(sid):
        return _nth(tasks, int(fixed[1]))
    if "/" in sid:
        return tasks.find(sid)
    return tasks.draw(int.from_bytes(hashlib.blake2b(sid.encode(), digest_size=6).digest(), "big") / 2**48)


def _nth(tasks: Tasks, n: int) -> tuple[Goals, int]:
    left = n
    for kind, members in tasks.members.items():
        if left < len(members):
            return tasks.sets[kind], int(members[left])
        left -= len(members)
    raise TaskError(f"fixed_{n}: the split {tasks.split!r} has {len(tasks):,} tasks, fixed_0 to fixed_{len(tasks) - 1}")
