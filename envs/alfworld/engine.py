"""Plays one Game: the rules of ALFWorld's text engine, word for word, without a planner, a grammar or anything global.

`oracle.py` compares it with the real engine step by step, tests/envs/alfworld/test_parity.py with recordings of it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Literal

from .game import Game
from .texts import HELP, MIDDLE_OF_ROOM, NOTHING_HAPPENS, describe, listing

Dialect = Literal["move", "put"]


class Engine:
    """The state of one game being played. It plays on after winning; reading `admissible` or `won` never changes it.

    at        location of the agent
    held      the object in hand, or None
    contents  receptacle → sorted objects in it (tuples, which copies may share)
    opened    open receptacles
    places    object → locations where it is said to be; `slice` and `look` go by it, not by `contents`
    removed   (object, receptacle) that was taken out and not put back; `look` goes by it
    clean hot cool sliced toggled   objects that are so now
    """

    __slots__ = (
        "_admissible", "_go", "_verbs", "_won", "at", "clean", "contents", "cool", "dialect", "game", "held", "hot",
        "opened", "places", "removed", "sliced", "toggled",
    )  # fmt: skip

    def __init__(self, game: Game, *, dialect: Dialect = "move") -> None:
        if dialect not in _VERBS:
            raise ValueError(f"dialect must be 'move' (alfworld >= 0.4) or 'put' (older files), got {dialect!r}")
        self.game = game
        self.dialect = dialect
        self._verbs = _VERBS[dialect]
        self._go: dict[int, list[str]] = {}  # place → its `go` commands; they never change, so copies share them
        self.reset()

    def reset(self) -> str:
        """Go back to the start and return the intro: the room's receptacles and the task."""
        game = self.game
        self.at = game.start
        self.held: int | None = None
        self.contents = list(game.contents)
        self.places = list(game.object_places)
        self.opened = set(game.opened)
        self.clean, self.hot, self.cool = set(game.clean), set(game.hot), set(game.cool)
        self.sliced, self.toggled = set(game.sliced), set(game.toggled)
        self.removed: set[tuple[int, int]] = set()
        self._admissible: list[str] | None = None
        self._won: bool | None = None
        room = self._look("") if self._here() else f"{MIDDLE_OF_ROOM}{listing(list(game.receptacle_index))}."
        return f"-= Welcome to TextWorld, ALFRED! =-\n\n{room}\n\nYour task is to: {game.task}."

    def step(self, command: str) -> str:
        """Carry out `command` and return the observation; "Nothing happens." for what is not admissible."""
        verb, _, rest = command.strip().partition(" ")
        act = self._verbs.get(verb)
        return (act(self, rest) if act else None) or NOTHING_HAPPENS

    def copy(self) -> Engine:
        """Return an independent engine in the same state."""
        twin = Engine.__new__(Engine)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if isinstance(value, (list, set)) else value)
        return twin

    __copy__ = copy

    @property
    def admissible(self) -> list[str]:
        """Every command accepted now, sorted, without repeats. Do not modify it: it is kept until the state changes."""
        if self._admissible is None:
            local = sorted(set(self._local_commands()))
            cut = bisect_left(local, "go to ")  # all `go` commands sort as one block
            self._admissible = local[:cut] + self._go_commands() + local[cut:]
        return self._admissible

    @property
    def won(self) -> bool:
        """Whether the goal holds now. It may stop holding again."""
        if self._won is None:
            self._won = self._goal_holds()
        return self._won

    def state_hash(self) -> str:
        """Return a key of the state: equal keys mean the same place, hand, contents, doors and properties.

        `removed` is left out: it colours only the text of `look`, and would tell apart states that play alike.
        """
        sets = (self.opened, self.clean, self.hot, self.cool, self.sliced, self.toggled)
        lying = [sorted(self.places[o]) for o in sorted(self.game.sliceable)]  # decides what can be sliced where
        state = (self.at, self.held, self.contents, [sorted(s) for s in sets], lying)
        return hashlib.blake2b(repr(state).encode(), digest_size=16).hexdigest()

    # ---- what can be done now

    def _changed(self) -> None:
        self._admissible = None
        self._won = None

    def _here(self) -> tuple[int, ...]:
        return self.game.receptacles_at.get(self.at, ())

    def _near(self, name: str) -> int | None:
        """Return the receptacle of that name if it is at the agent's place."""
        r = self.game.receptacle_index.get(name)
        return r if r is not None and self.game.receptacle_places[r] == self.at else None

    def _accessible(self, r: int) -> bool:
        return r not in self.game.openable or r in self.opened

    def _go_commands(self) -> list[str]:
        commands = self._go.get(self.at)
        if commands is None:
            places, at = self.game.receptacle_places, self.at
            names = (name for name, r in self.game.receptacle_index.items() if places[r] != at)
            commands = self._go[at] = sorted(f"go to {name}" for name in names)
        return commands

    def _local_commands(self) -> list[str]:
        """Return every command but `go`, in any order, perhaps with repeats."""
        game, held, names = self.game, self.held, self.game.object_names
        out = ["inventory", "look", "help"] if self.dialect == "move" else ["inventory", "look"]
        for r in self._here():
            name = game.receptacle_names[r]
            out.append(f"examine {name}")
            if r in game.openable:
                out.append(f"{'close' if r in self.opened else 'open'} {name}")
            if self._accessible(r):
                if held is None:
                    out += [f"take {names[o]} from {name}" for o in self.contents[r] if o in game.pickupable]
                elif held in game.fits[r]:
                    moving = self.dialect == "move"
                    out.append(f"move {names[held]} to {name}" if moving else f"put {names[held]} in/on {name}")
            if game.toggleable:
                out += [f"use {names[o]}" for o in self.contents[r] if o in game.toggleable]
            if held is not None and held in game.treatable(r):
                out.append(f"{game.devices[r]} {names[held]} with {name}")
        if held is not None:
            out.append(f"examine {names[held]}")
            if held in game.knives:
                out += [f"slice {names[o]} with {names[held]}" for o in game.sliceable if self.at in self.places[o]]
        return out

    def _goal_holds(self) -> bool:
        game, goal = self.game, self.game.goal
        if goal.kind == "light":
            lit = game.lamps & self.toggled  # used at any time before, wherever that was
            return self.held in game.target_objects and any(not lit.isdisjoint(self.contents[r]) for r in self._here())
        done = {"": None, "clean": self.clean, "hot": self.hot, "cool": self.cool}[goal.treatment]
        wanted = game.target_objects if done is None else game.target_objects & done
        needed = 2 if goal.kind == "two" else 1
        return any(len(wanted.intersection(self.contents[r])) >= needed for r in game.target_receptacles)

    # ---- the commands: each gets what follows the verb and returns the observation, or None where it is not admissible

    def _help(self, rest: str) -> str | None:
        return None if rest else HELP

    def _look(self, rest: str) -> str | None:
        if rest:
            return None
        game, here = self.game, self._here()
        if not here:
            return f"{MIDDLE_OF_ROOM}nothing."
        facing = listing([game.receptacle_names[r] for r in here], article="")
        beside = [game.object_names[o] for o, r in sorted(self.removed) if r in here and self.at in self.places[o]]
        return f"You are facing the {facing}. Next to it, you see {listing(beside)}."

    def _inventory(self, rest: str) -> str | None:
        if rest:
            return None
        if self.held is None:
            return "You are not carrying anything."
        return f"You are carrying: a {self.game.object_names[self.held]}."

    def _go_to(self, rest: str) -> str | None:
        to, _, name = rest.partition(" ")
        r = self.game.receptacle_index.get(name) if to == "to" else None
        place = None if r is None else self.game.receptacle_places[r]
        if r is None or place is None or place == self.at:
            return None
        self.at = place
        self._changed()
        where = name if self.dialect == "move" else self.game.location_names[place]
        return f"You arrive at {where}. {self._seen(r)}"

    def _seen(self, r: int) -> str:
        """Return what `examine` says about a receptacle."""
        name = self.game.receptacle_names[r]
        if not self._accessible(r):
            return f"The {name} is closed."
        inside = listing([self.game.object_names[o] for o in self.contents[r]])
        if r in self.game.openable:
            return f"The {name} is open. In it, you see {inside}."
        return f"On the {name}, you see {inside}."

    def _open(self, rest: str) -> str | None:
        r = self._near(rest)
        if r is None or self._accessible(r):
            return None
        self.opened.add(r)
        self._changed()
        return f"You open the {rest}. {self._seen(r)}"

    def _close(self, rest: str) -> str | None:
        r = self._near(rest)
        if r is None or r not in self.game.openable or r not in self.opened:
            return None
        self.opened.remove(r)
        self._changed()
        return f"You close the {rest}."

    def _examine(self, rest: str) -> str | None:
        r = self._near(rest)
        if r is not None:
            return self._seen(r)
        if self.held is not None and self.game.object_names[self.held] == rest:
            return self._described(self.held)
        return None

    def _described(self, o: int) -> str:
        """Return what `examine` says about the object in hand."""
        game, name = self.game, self.game.object_names[o]
        if o in game.portable:
            inside = listing([game.object_names[i] for i in game.inside.get(o, ())])
            return f"This is a normal {name}. In it, you see {inside}."
        properties = {p: o in getattr(self, p) for p in ("hot", "cool", "clean", "sliced")}
        if treated := describe(name, **properties):
            return treated
        if o in game.toggleable and o in self.toggled:
            return f"This {name} is on."
        if o in game.sliceable and o in self.sliced:
            return f"This is a sliced {name}."
        return f"There's nothing special about {name}."

    def _take(self, rest: str) -> str | None:
        o_name, _, r_name = rest.partition(" from ")
        o, r = self.game.object_index.get(o_name), self._near(r_name)
        if self.held is not None or o is None or r is None or not self._accessible(r):
            return None
        if o not in self.game.pickupable or o not in self.contents[r]:
            return None
        self.held = o
        self.contents[r] = tuple(x for x in self.contents[r] if x != o)
        self.places[o] -= {self.at}  # this place only: a file may put the object at another one as well
        self.removed.add((o, r))
        self._changed()
        return f"You pick up the {o_name} from the {r_name}."

    def _put_down(self, o_name: str, r_name: str) -> bool:
        """Put the held object into a receptacle, if it has that name and may lie there."""
        o, r = self.held, self._near(r_name)
        if o is None or r is None or self.game.object_names[o] != o_name:
            return False
        if not self._accessible(r) or o not in self.game.fits[r]:
            return False
        self.held = None
        self.contents[r] = tuple(sorted({*self.contents[r], o}))  # a set: a file may have it in two receptacles
        self.places[o] |= {self.at}
        self.removed.discard((o, r))
        self._changed()
        return True

    def _move(self, rest: str) -> str | None:
        o_name, _, r_name = rest.partition(" to ")
        return f"You move the {o_name} to the {r_name}." if self._put_down(o_name, r_name) else None

    def _put(self, rest: str) -> str | None:
        o_name, _, r_name = rest.partition(" in/on ")
        return f"You put the {o_name} in/on the {r_name}." if self._put_down(o_name, r_name) else None

    def _treat(self, rest: str, verb: str) -> str | None:
        """Clean, heat or cool the held object; the door of the device does not matter."""
        o_name, _, r_name = rest.partition(" with ")
        o, r = self.held, self._near(r_name)
        if o is None or r is None or self.game.object_names[o] != o_name:
            return None
        if self.game.devices[r] != verb or o not in self.game.treatable(r):
            return None
        gained = {"clean": self.clean, "heat": self.hot, "cool": self.cool}[verb]
        if verb != "clean":
            (self.cool if verb == "heat" else self.hot).discard(o)
        gained.add(o)
        self._changed()
        return f"You {verb} the {o_name} using the {r_name}."

    def _use(self, rest: str) -> str | None:
        o = self.game.object_index.get(rest)
        if o not in self.game.toggleable or not any(o in self.contents[r] for r in self._here()):
            return None
        self.toggled.add(o)
        self._changed()
        return f"You turn on the {rest}."  # also the second time: the real engine never says "off"

    def _slice(self, rest: str) -> str | None:
        o_name, _, k_name = rest.partition(" with ")
        o, knife = self.game.object_index.get(o_name), self.held
        if o is None or knife not in self.game.knives or self.game.object_names[knife] != k_name:
            return None
        if o not in self.game.sliceable or self.at not in self.places[o]:
            return None
        self.sliced.add(o)
        self._changed()
        return f"You sliced the {o_name} with the {k_name}."


_COMMON: dict[str, Callable[[Engine, str], str | None]] = {
    "look": Engine._look, "inventory": Engine._inventory, "examine": Engine._examine, "go": Engine._go_to,
    "open": Engine._open, "close": Engine._close, "take": Engine._take, "use": Engine._use, "slice": Engine._slice,
    **{verb: partial(Engine._treat, verb=verb) for verb in ("clean", "heat", "cool")},
}  # fmt: skip
_VERBS = {"move": {**_COMMON, "move": Engine._move, "help": Engine._help}, "put": {**_COMMON, "put": Engine._put}}
