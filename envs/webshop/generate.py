"""The generated catalogue: any number of products, each computed from its number and the seed alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args

from agentgym.errors import ConfigError, did_you_mean

from .types import Product

if TYPE_CHECKING:
    from .world import World

Size = Literal["mini", "full"]
VERSION = 2  # raised whenever the same seed gives other products: what was built from the old ones is then built anew

_MASK = (1 << 64) - 1
_BITS = {"full": 41, "mini": 24}  # of the number that an id spells
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PAIRS = tuple(a + b for a in _DIGITS for b in _DIGITS)
_SYLLABLES = tuple(a + b for a in "BDFGKLMNPRSTV" for b in "AEIOU")[:64]


class Generator:
    """A generated catalogue of n products.

    size  full: titles, texts, options, attributes and prices with the statistics of the official 1,000 products
          mini: short pages of a few hundred different words, for small models

    The same seed and number give the same product in every process, on every machine, whatever n is. Raises ConfigError for an unknown size, or an n
    that is below 1 or too large (full: 2,199,023,255,552, mini: 16,777,216).
    """

    def __init__(self, n: int, seed: int = 0, size: Size = "full") -> None:
        if size not in get_args(Size):
            raise ConfigError(f"Generator(size={size!r}): there is no such size.{did_you_mean(str(size), get_args(Size))} Sizes: {get_args(Size)}")
        if not 1 <= n <= 1 << _BITS[size]:
            raise ConfigError(f"Generator(n={n}, size={size!r}): n must be from 1 to {1 << _BITS[size]:,}")
        self.n, self.seed, self.size = n, seed, size
        self._start = _mixed(seed & _MASK)

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Product]:
        return map(self.product, range(self.n))

    def products(self) -> Iterator[Product]:
        """Yield all products, in order."""
        return iter(self)

    def product(self, i: int) -> Product:
        """Return product i. Raises IndexError outside 0 ≤ i < n."""
        if not 0 <= i < self.n:
            raise IndexError(f"product({i}): there are products 0 to {self.n - 1:,}")
        key = maker = _mixed(self._start + i)
        if i & 1 and key & 7 < 3:  # a rival of the one before: the same ware, from the same maker
            maker = _mixed(self._start + i - 1)
        return _world(self.size).product(key, maker, self._asin(i))

    def _asin(self, i: int) -> str:
        number = _scattered(i, _BITS[self.size], self._start)
        if self.size == "mini":  # four syllables: a small model can spell them
            return "B0" + "".join(_SYLLABLES[number >> shift & 63] for shift in (18, 12, 6, 0))
        high, low = divmod(number, 1296 * 1296)
        return f"B0{_PAIRS[high // 1296]}{_PAIRS[high % 1296]}{_PAIRS[low // 1296]}{_PAIRS[low % 1296]}"


@functools.cache
def _world(size: Size) -> World:
    from .world import Full, Mini  # half a second of word tables: only those pay who make products, not who open a finished catalogue

    return Full() if size == "full" else Mini()


def _mixed(x: int) -> int:
    """Return 64 bits that look random: SplitMix64's output for the x-th state."""
    x = (x + 1) * 0x9E3779B97F4A7C15 & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def _scattered(i: int, bits: int, key: int) -> int:
    """Return a number below 2 ** bits, another one for every i below that: each step can be undone."""
    mask = (1 << bits) - 1
    x = i ^ key & mask
    for odd in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        x = x * odd & mask
        x ^= x >> bits // 2 + 1
    return x
