"""Brands and the values of options of the generated catalogue, common to all its families."""

from __future__ import annotations

from .words import listed

# Brands are made of three syllables.
_BRAND_FIRST = listed(
    "Al, Ar, Bel, Bor, Bri, Cal, Cor, Dal, Dor, El, Fal, Fen, Gal, Gri, Hal, Hol, Is, Jor, Kel, Kor, Lan, Lor, Mar, Mel, Nor, Ol, Or, Pel, "
    "Quil, Ral, Ros, Sal, Ser, Tal, Tor, Ul, Val, Ver, Wil, Yar, Zel, Zor, Ób, Éla"
)
_BRAND_MIDDLE = listed("a, e, i, o, an, en, im, ov, ul")
_BRAND_LAST = listed(
    "bex, fex, kesh, lune, morn, nira, pell, quen, quist, rath, rell, sanne, thul, thys, tova, vane, vik, wex, wyn, yra, zeth, zine, zo"
)
BRANDS = tuple(first + middle + last for first in _BRAND_FIRST for middle in _BRAND_MIDDLE for last in _BRAND_LAST)

# Values of options. Ordered pools are cut out in one piece ("small, medium, large"), the others are mixed.
_BASE = listed(
    "black, white, gray, navy, blue, red, green, pink, purple, brown, beige, yellow, orange, burgundy, khaki, ivory, teal, coral, charcoal, "
    "olive, mint, lavender, gold, silver, turquoise, wine, cream, tan, peach, plum"
)
_SHADES = listed("light, dark, deep, pale, bright, dusty, soft, royal, vintage")
_SHADED = tuple(f"{shade} {base}" for shade in _SHADES for base in ("blue", "gray", "green", "pink", "purple", "brown", "red"))
_TWO = tuple(
    f"{a} | {b}" for a in ("black", "white", "gray", "navy", "pink", "blue") for b in ("red", "gold", "silver", "green", "yellow", "orange", "tan")
)
_PRINTS = tuple(
    f"{kind} {base}"
    for kind in ("floral", "striped", "plaid", "leopard", "camo", "tie dye")
    for base in ("black", "blue", "green", "pink", "white", "red")
)
_FINISHES = listed(
    "walnut, oak, espresso, natural, rustic brown, white oak, dark walnut, cherry, gray oak, antique white, weathered gray, black oak, "
    "light oak, mahogany, birch, chestnut, matte black, brushed nickel, antique brass, chrome, bronze, copper, satin gold, "
    "oil rubbed bronze"
)
_SKIN = listed("fair, porcelain, ivory, light, nude, beige, sand, honey, tan, caramel, almond, bronze, chestnut, espresso, mocha, rich cocoa")
_LIPS = listed(
    "rosewood, berry kiss, classic red, coral glow, nude pink, plum night, cherry pop, soft mauve, terracotta, ruby, peach dream, hot pink, "
    "brick, wild rose, raisin"
)
_HAIR = listed(
    "jet black, natural black, dark brown, medium brown, light brown, ash brown, chestnut brown, honey blonde, ash blonde, platinum blonde, "
    "golden blonde, copper red, burgundy, auburn, silver gray, ombre brown, balayage blonde, strawberry blonde"
)
_FLAVORS = listed(
    "original, vanilla, chocolate, dark chocolate, milk chocolate, strawberry, blueberry, raspberry, lemon, lime, orange, mango, pineapple, "
    "coconut, banana, apple cinnamon, maple, honey, caramel, salted caramel, peanut butter, hazelnut, almond, mocha, mint, ginger, "
    "pumpkin spice, cherry, peach, pomegranate, green apple, watermelon, crème brûlée, variety pack"
)
_SAVORY = listed(
    "original, sea salt, barbecue, sour cream and onion, hot and spicy, jalapeño, sweet chili, garlic herb, rosemary, black pepper, "
    "smoked paprika, teriyaki, honey mustard, cheddar, white cheddar, ranch, buffalo, lime chili, everything bagel, truffle, wasabi, "
    "maple bacon, salt and vinegar, cracked pepper, tomato basil, variety pack"
)
_SCENTS = listed(
    "lavender, vanilla, rose, jasmine, eucalyptus, coconut, citrus, sandalwood, fresh linen, ocean breeze, peppermint, cedar, amber, "
    "green tea, honeysuckle, bergamot, lemongrass, unscented, cherry blossom, cucumber melon, white musk, orange blossom, patchouli, "
    "sea salt, warm cotton"
)
ORDERED = {
    "letters": listed("x-small, small, medium, large, x-large, xx-large, 3x-large, 4x-large, 5x-large"),
    "waist": tuple(f"{w}w x {leg}l" for w in range(28, 45, 2) for leg in (30, 32, 34)),
    "numbers": tuple(str(n) for n in range(0, 26, 2)),
    "shoes": tuple(f"{n}{half}" for n in range(5, 15) for half in ("", ".5")) + tuple(f"{n} wide" for n in range(6, 15)),
    "bras": tuple(f"{band}{cup}" for band in range(32, 45, 2) for cup in "abcd"),
    "fluid": listed("0.5 fl oz, 1 fl oz, 1.7 fl oz, 2 fl oz, 3.4 fl oz, 4 fl oz, 6 fl oz, 8 fl oz, 12 fl oz, 16 fl oz, 32 fl oz, 1 gallon"),
    "ounces": listed(
        "2 ounce (pack of 1), 3.5 ounce (pack of 2), 5 ounce (pack of 4), 7 ounce (pack of 6), 8 ounce (pack of 1), 10 ounce (pack of 2), "
        "12 ounce (pack of 1), 12 ounce (pack of 6), 1 pound (pack of 1), 2 pound (pack of 1), 3 pound (pack of 2), 5 pound (pack of 1)"
    ),
    "packs": listed("1 pack, 2 pack, 3 pack, 4 pack, 6 pack, 8 pack, 10 pack, 12 pack, 24 pack"),
    "counts": listed("10 count, 20 count, 30 count, 50 count, 100 count, 150 count, 200 count, 500 count"),
    "inches": tuple(f"{n} inch" for n in range(8, 31, 2)),
    "feet": listed("1.5 feet, 3 feet, 6 feet, 10 feet, 12 feet, 15 feet, 20 feet, 25 feet, 30 feet, 50 feet, 75 feet, 100 feet"),
    "memory": listed("16gb, 32gb, 64gb, 128gb, 256gb, 512gb, 1tb, 2tb, 4tb, 8tb"),
    "screens": listed('24", 32", 40", 43", 50", 55", 65", 75", 86"'),
    "watch": listed("38mm, 40mm, 41mm, 42mm, 44mm, 45mm, 46mm, 49mm"),
    "beds": listed("twin, twin xl, full, queen, king, california king"),
    "rugs": listed("2 ft x 3 ft, 2 ft x 8 ft, 3 ft x 5 ft, 4 ft x 6 ft, 5 ft x 7 ft, 6 ft x 9 ft, 8 ft x 10 ft, 9 ft x 12 ft, 10 ft x 14 ft"),
    "squares": listed('12" x 12", 16" x 16", 18" x 18", 20" x 20", 22" x 22", 24" x 24", 26" x 26"'),
    "drapes": listed('38" x 54", 42" x 63", 52" x 63", 52" x 84", 52" x 95", 52" x 108", 60" x 72", 60" x 84", 72" x 84", 84" x 84"'),
    "pictures": listed('8" x 10", 11" x 14", 12" x 16", 16" x 20", 16" x 24", 20" x 30", 24" x 36", 32" x 48"'),
    "widths": listed("30 inches, 36 inches, 40 inches, 47 inches, 55 inches, 60 inches, 70 inches, 80 inches"),
}
POOLS: dict[str, tuple[str, ...]] = {
    **ORDERED,
    "cloth": _BASE + _SHADED + _PRINTS + _TWO,
    "plain": _BASE + _SHADED,
    "finish": _FINISHES + _BASE[:10],
    "lips": _LIPS,
    "skin": _SKIN,
    "hair": _HAIR,
    "flavors": _FLAVORS,
    "savory": _SAVORY,
    "scents": _SCENTS,
    "fits": listed("men, women, youth, big and tall, petite, regular"),
    "gear": listed(
        "with case, without case, single, bundle, starter kit, with charger, wired, wireless, left handed, right handed, deluxe kit, travel kit"
    ),
    "decor": listed(
        "modern, rustic, farmhouse, industrial, mid century, boho, classic, coastal, with drawer, without drawer, round, square, tall, low"
    ),
    "beauty": listed("travel set, full set, starter set, curved, straight, natural, dramatic, matte, shimmer, gift set, refill, short handle"),
    "sets": listed("single, set of 2, set of 3, set of 4, set of 6"),
}
