"""What the engine says, word for word."""

from __future__ import annotations

from collections.abc import Sequence

NOTHING_HAPPENS = "Nothing happens."
MIDDLE_OF_ROOM = "You are in the middle of a room. Looking quickly around you, you see "
HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


def listing(names: Sequence[str], article: str = "a ") -> str:
    """Return "nothing", "a x", "a x, and a y", or "a x, a y, and a z"."""
    if not names:
        return "nothing"
    items = [article + name for name in names]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"


def describe(name: str, *, hot: bool, cool: bool, clean: bool, sliced: bool) -> str | None:
    """Return what `examine` says about the treatment of an object; None when it was not hot, cool or clean."""
    words = ["hot"] if hot else ["cool"] if cool else []
    words += ["clean"] if clean else []
    if not words:
        return None
    adjective = " and ".join(words) + (" sliced" if sliced else "")
    return f"This is a {'cold' if adjective == 'cool' else adjective} {name}."
