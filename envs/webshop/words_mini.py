"""Word tables of the small generated world: a few hundred words in all, so that a small model can learn them."""

from __future__ import annotations

from .words import family, listed

BRANDS = listed("Bivo, Daxo, Felu, Gomi, Hapu, Jevo, Kazu, Lomi, Mavu, Pofu, Ruzi, Sovu, Tamo, Vebi, Wuli, Zeko")
POOLS = {
    "color": listed("black, white, red, blue, green, pink, gray, brown"),
    "letters": listed("small, medium, large"),
    "shoes": listed("6, 7, 8, 9, 10, 11"),
    "packs": listed("1 pack, 2 pack, 4 pack, 6 pack"),
    "feet": listed("3 feet, 6 feet, 10 feet"),
    "flavors": listed("mint, lemon, honey, cocoa, vanilla, cherry"),
    "scents": listed("rose, lemon, mint, vanilla, lavender"),
}
DESCRIPTIONS = ("{look} {noun} for {use}", "good for {use}", "made for {use}", "{look} {stuff} for {use}", "for {use} and {use}")

FAMILIES = (
    family(
        "fashion",
        "Clothing",
        price=22,
        options="color:color:5, size:letters:5",
        attributes="is machine washable, is slim fit, has long sleeve(s), is quick drying, has a button closure, for daily wear, is water proof, "
        "is hand made",
        look="soft, warm, light, plain",
        stuff="cotton, wool, linen",
        part="hem",
        extra="pockets",
        use="work, school, sport, home",
        wares="""
            shirts | Tops › Shirts | shirt
            sweaters | Knitwear › Sweaters | sweater | 30
            jackets | Outerwear › Jackets | jacket | 48
            dresses | Gowns › Dresses | dress | 34
            """,
    ),
    family(
        "fashion",
        "Shoes",
        price=44,
        options="color:color:4, size:shoes:6",
        attributes="has a rubber sole, is water proof, is non slip, is open toe, has arch support, of real leather, is light weight, for daily wear",
        look="soft, warm, light, strong",
        stuff="suede, canvas, cork",
        part="heel",
        extra="laces",
        use="work, school, sport, home",
        wares="""
            boots | High Shoes › Boots | boots | 60
            sandals | Summer Shoes › Sandals | sandals | 30
            sneakers | Sport Shoes › Sneakers | sneakers
            """,
    ),
    family(
        "beauty",
        "Beauty",
        price=12,
        options="scent:scents:4, size:letters:3, size:packs:3",
        attributes="is cruelty free, is oil free, for dry skin, has vitamin c, of shea butter, is anti aging, for daily use, is long lasting",
        look="soft, rich, light, fresh",
        stuff="aloe, honey, oat",
        part="skin",
        extra="pump",
        use="hands, face, night, summer",
        wares="""
            soaps | Bath › Soaps | soap | 8
            face creams | Face › Creams | face cream | 19
            body lotions | Body › Lotions | body lotion
            """,
    ),
    family(
        "beauty",
        "Hair",
        price=15,
        options="scent:scents:4, size:packs:3, color:color:3:dyes",
        attributes="is sulfate free, for dry hair, for hair growth, has argan oil, is cruelty free, for curly hair, easy use, is long lasting",
        look="soft, rich, light, fresh",
        stuff="aloe, honey, oat",
        part="scalp",
        extra="pump",
        use="curls, men, women, summer",
        wares="""
            shampoos | Washing › Shampoos | ~shampoo | 13
            hair oils | Care › Oils | ~hair oil
            hair dyes | Color › Dyes | ~hair dye | 11
            """,
    ),
    family(
        "electronics",
        "Sound",
        price=45,
        options="color:color:6, size:letters:1",
        attributes="is noise cancelling, has deep bass, is water proof, is hands free, has stereo sound, easy carry, is light weight, "
        "has a remote control",
        look="small, loud, clear, strong",
        stuff="metal, wood, foam",
        part="knob",
        extra="case",
        use="work, parties, home, travel",
        wares="""
            headphones | Ears › Headphones | headphones | 55
            speakers | Boxes › Speakers | speaker
            radios | Tuners › Radios | radio | 32
            """,
    ),
    family(
        "electronics",
        "Phones",
        price=17,
        options="color:color:5, size:feet:2:cables, size:packs:2",
        attributes="has fast charging, is heavy duty, is shock proof, easy install, is water proof, is high speed, is light weight, is long lasting",
        look="small, slim, clear, strong",
        stuff="metal, nylon, rubber",
        part="plug",
        extra="case",
        use="work, cars, home, travel",
        wares="""
            phone cases | Cover › Cases | phone case
            chargers | Power › Chargers | charger | 21
            usb cables | Wires › Cables | usb cable | 11
            """,
    ),
    family(
        "garden",
        "Furniture",
        price=95,
        options="color:color:6, size:letters:4",
        attributes="of solid wood, has metal legs, easy clean, easy assemble, for living room, is heavy duty, is space saving, has storage space",
        look="small, tall, modern, round",
        stuff="oak, pine, steel",
        part="leg",
        extra="drawer",
        use="books, work, kids, kitchens",
        wares="""
            tables | Dining › Tables | table | 130
            chairs | Seats › Chairs | chair | 75
            shelves | Storage › Shelves | shelf | 60
            desks | Office › Desks | desk | 140
            """,
    ),
    family(
        "garden",
        "Decor",
        price=28,
        options="color:color:6, size:letters:4",
        attributes="is machine washable, is super soft, easy clean, for living room, is non slip, is hand made, is eco friendly, is wall mounted",
        look="small, thick, modern, round",
        stuff="cotton, wool, jute",
        part="edge",
        extra="cover",
        use="beds, sofas, kids, kitchens",
        wares="""
            rugs | Floor › Rugs | rug | 50
            pillows | Bed › Pillows | pillow | 19
            lamps | Light › Lamps | lamp | 42
            """,
    ),
    family(
        "grocery",
        "Snacks",
        price=15,
        options="flavor:flavors:5, size:packs:4",
        attributes="is gluten free, is sugar free, of real fruit, is high protein, is low sodium, is ready to eat, is nut free, is non gmo",
        look="sweet, fresh, rich, crunchy",
        stuff="oat, rice, corn",
        part="crust",
        extra="bag",
        use="kids, parties, school, travel",
        wares="""
            cookies | Bakery › Cookies | cookies
            chips | Crisps › Chips | chips | 11
            candies | Sweets › Candies | ~candy
            """,
    ),
    family(
        "grocery",
        "Drinks",
        price=18,
        options="flavor:flavors:5, size:packs:4",
        attributes="is caffeine free, is sugar free, is fair trade, is low acid, of real fruit, is high quality, is dairy free, is non gmo",
        look="sweet, fresh, rich, strong",
        stuff="ginger, rice, apple",
        part="sip",
        extra="tin",
        use="kids, parties, work, night",
        wares="""
            teas | Leaves › Teas | ~tea | 14
            coffees | Beans › Coffees | ~coffee | 24
            juices | Fruit › Juices | ~juice
            """,
    ),
)
