"""Colour names: option values that name a colour are compared by it alone ("2005black" and "a4-black" are both "black")."""

from __future__ import annotations

from functools import lru_cache

# The names that shops write into their options, the shades "light" and "dark", and patterns that stand for a colour. WebShop has an ordered list of
# its own; this is not it. Recorded rewards prove `ash` ("fashion black girl01" is not black), `light` ("1-light" is "4-light"), `tan` ("rectangular"
# is not "rectangular"), and that the order is alphabetical ("navy blue" is blue); they rule out `army`, `baby`, `metallic`, `multi`. The others are
# common names that contradict no record.
COLORS = tuple(
    sorted(
        """ash beige black blue brown gold gray green grey navy orange pink purple red silver tan white yellow light dark
        apricot aqua azure blush bronze burgundy camel caramel champagne charcoal cherry chestnut chocolate coffee copper coral cranberry cream
        espresso fuchsia grape indigo ivory khaki lavender lemon lilac lime magenta maroon mauve mint mocha mustard nude olive peach plum rose royal
        rust sand sapphire slate steel stone taupe teal turquoise violet walnut wheat wine
        camo denim heather leopard multicolor natural rainbow""".split()
    )
)


@lru_cache(maxsize=1 << 14)
def plain(value: str) -> str:
    """Return the first colour of the list that is anywhere in `value`, else `value`."""
    return next((color for color in COLORS if color in value), value)
