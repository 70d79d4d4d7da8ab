"""Word tables of the generated catalogue: food and drink."""

from __future__ import annotations

from .words import family

_ROOT = "Food & Drink"

FAMILIES = (
    family(
        "grocery",
        _ROOT,
        price=28,
        options="flavor name:flavors:2.08, size:ounces:5, style:sets:0.14",
        attributes="is gluten free, is non gmo, is sugar free, is nut free, is individually wrapped, of natural flavors, is dairy free, "
        "is kosher certified, is fat free, is low calorie, has resealable bag(s), is vegan friendly, has no artificial colors, "
        "is soy free, for birthday parties, has no corn syrup, is hand made, is bite size, of cane sugar, for baby showers, "
        "for valentine gifts, is certified organic, is high quality, is caffeine free",
        look="sweet, chewy, crunchy, rich, classic, fruity, creamy, soft, crispy, old fashioned, sour, buttery",
        stuff="cocoa, honey, butter, vanilla, caramel, almonds, oats, brown sugar, cherries, toffee, coconut",
        part="coating, filling, crust, center, topping, glaze, swirl, crumb",
        extra="a gift tin, a twist wrap, a party bag, a reusable jar, mixed shapes, sprinkles, a window box, a greeting card",
        use="lunch boxes, parties, holidays, movie nights, office jars, baking, piñatas, dessert tables, road trips, grandparents",
        wares="""
            chocolates | Snacks & Sweets › Chocolate | ~chocolate, chocolate bar, chocolate truffles | 30
                + has high cocoa content, is fair trade
            hard candies | Snacks & Sweets › Candy › Hard Candy | hard candy, lollipops, candy drops | 22
                + is individually boxed
            gummies | Snacks & Sweets › Candy › Gummies | gummies, gummy bears, sour gummies | 20
                + is gelatin free, has vitamin c
            cookies | Snacks & Sweets › Cookies | cookies, butter cookies, sandwich cookies
                + is baked fresh, has chocolate chip(s)
            cakes | Bakery › Cakes | pound cake, fruit cake, coffee cake | 37
                + is baked fresh
            fruit snacks | Snacks & Sweets › Fruit Snacks | fruit snacks, fruit leather, fruit strips | 20
                + has vitamin c
            puddings | Snacks & Sweets › Puddings | ~pudding, pudding cups, gelatin cups | 17
            cake toppers | Bakery › Decorations | cake topper, cupcake toppers, edible glitter | 13
                + is food safe, easy use
            """,
    ),
    family(
        "grocery",
        _ROOT,
        price=29,
        options="flavor name:savory:2.08, size:ounces:5, size:packs:1",
        attributes="is gluten free, is non gmo, is high protein, is keto friendly, is ready to eat, is low sodium, of sea salt, is plant based, "
        "has resealable bag(s), is grain free, is low carb, is dairy free, is fat free, has no trans fat, is usda organic, "
        "has simple ingredients, is kosher certified, for the whole family, is certified organic, is soy free, has no preservatives",
        look="crunchy, salty, crispy, smoky, spicy, savory, light, bold, toasted, hearty, tangy, nutty",
        stuff="rock salt, cheddar, paprika, garlic, olive oil, chili, sesame, black pepper, quinoa, corn, lentils",
        part="crunch, seasoning, crust, roast, rub, bite, kernel, crumb",
        extra="single serve pouches, a large tub, a snack box, a dipping cup, a tear strip, a canister, a party bowl, a tasting card",
        use="hikes, lunch boxes, game nights, road trips, cheese boards, desk drawers, school breaks, camping, movie nights, beer tastings",
        wares="""
            crackers | Snacks & Sweets › Crackers | crackers, wheat crackers, seed crackers | 24
                + of whole grains, is oven baked
            popcorn | Snacks & Sweets › Popcorn | ~popcorn, kettle corn, microwave popcorn
                + of whole grains, is air popped
            potato chips | Snacks & Sweets › Chips › Potato | potato chips, kettle chips, veggie chips
                + is kettle cooked, is baked not fried
            trail mixes | Snacks & Sweets › Nuts & Mixes › Trail Mix | trail mix, snack mix, party mix
                + has dried fruit, is dry roasted
            nuts | Snacks & Sweets › Nuts & Mixes › Nuts | almonds, mixed nuts, cashews | 34
                + is dry roasted, is lightly salted, is unsalted
            meat snacks | Snacks & Sweets › Meat Snacks | beef jerky, meat sticks, turkey jerky | 36
                + of grass fed beef, is naturally smoked
            seaweed snacks | Snacks & Sweets › Seaweed | seaweed snacks, seaweed sheets, seaweed chips | 23
                + is lightly salted
            puffed snacks | Snacks & Sweets › Puffs | puffed snacks, cheese puffs, rice puffs
                + is baked not fried, is air popped
            pretzels | Snacks & Sweets › Pretzels | pretzels, pretzel sticks, pretzel bites | 24
                + is oven baked, of whole grains
            """,
    ),
    family(
        "grocery",
        _ROOT,
        price=28,
        options="flavor name:flavors:2.6, size:packs:4, size:counts:1",
        attributes="is high protein, is gluten free, is low sugar, is non gmo, is plant based, has dietary fiber, is keto friendly, is soy free, "
        "has chia seeds, is peanut free, has no added sugar, is vegan, is individually wrapped, is dairy free, is certified organic, "
        "of real nuts, is low glycemic, is kosher certified, of natural flavors, is high fiber, easy use",
        look="chewy, crunchy, hearty, wholesome, filling, quick, nutty, fruity, warm, toasted, fluffy, light",
        stuff="oats, almonds, dates, honey, cranberries, flax seeds, dark chocolate, cinnamon, coconut, pecans",
        part="cluster, texture, base, topping, grain, bite, crunch, drizzle",
        extra="a family box, single cups, a scoop, a variety box, a recipe card, a stand up pouch, a canister, a spoon",
        use="busy mornings, the gym, hikes, kids, office drawers, brunch, travel, campers, students, pre workout",
        wares="""
            granola bars | Breakfast › Bars › Granola | granola bars, oat bars, fruit and nut bars
                + of whole grain oats, has chocolate chip(s)
            protein bars | Breakfast › Bars › Protein | protein bars, energy bars, snack bars | 34
                + has whey protein, has live probiotics
            cereals | Breakfast › Cereals | ~cereal, granola, breakfast cereal | 23
                + of whole grain oats, for quick breakfasts
            oatmeals | Breakfast › Oatmeal | ~oatmeal, instant oatmeal, steel cut oats | 24
                + of whole grain oats, for quick breakfasts, is sprouted
            pancake mixes | Breakfast › Pancakes | pancake mix, waffle mix, muffin mix | 22
                + easy prepare, for quick breakfasts, has buttermilk
            """,
    ),
    family(
        "grocery",
        _ROOT,
        price=31,
        options="flavor name:flavors:2.6, size:packs:3, size:fluid:2, style:sets:0.09",
        attributes="is sugar free, is certified organic, of natural flavors, is non gmo, is keto friendly, is fair trade, is zero calorie, "
        "is shelf stable, is gluten free, is dairy free, has no artificial sweeteners, is unsweetened, is kosher certified, is vegan, "
        "is high quality, is low calorie",
        look="smooth, bold, refreshing, creamy, sparkling, aromatic, mellow, strong, fruity, light, dark, iced",
        stuff="ginger, hibiscus, cocoa, vanilla, lemon, turmeric, arabica beans, oat cream, chamomile, mint, pomegranate",
        part="aroma, finish, roast, brew, blend, leaf, foam, sip",
        extra="twenty sachets, a tin box, compostable pods, a pump, silk bags, a frother, a carry pack, a tasting guide",
        use="mornings, hot days, the office, workouts, afternoon breaks, bedtime, lattes, brunch, hikers, holidays",
        wares="""
            coffees | Beverages › Coffee | ~coffee, ground coffee, coffee pods | 34
                + is single origin, is low acid, is fresh roasted, for cold brew, is caffeine free
            teas | Beverages › Tea | ~tea, green tea, herbal tea | 23
                + is caffeine free, is loose leaf, has added antioxidants
            juices | Beverages › Juice | ~juice, apple juice, juice pouches
                + of real fruit juice, is cold pressed, has vitamin c
            hot chocolates | Beverages › Hot Chocolate | ~hot chocolate, cocoa mix, drinking chocolate | 26
                + easy mix, is caffeine free
            energy drinks | Beverages › Energy Drinks | energy drink, energy shots, sports drink | 35
                + has electrolytes, has natural caffeine
            drink mixes | Beverages › Drink Mixes | drink mix, lemonade mix, iced tea mix | 20
                + has electrolytes, easy mix, has vitamin c
            protein shakes | Beverages › Protein Shakes | protein shake, meal shake, protein powder | 42
                + is lactose free, is high protein, is plant based, easy mix
            coffee creamers | Beverages › Creamers | ~coffee creamer, creamer singles, creamer powder | 25
                + is lactose free, is plant based
            plant milks | Beverages › Plant Milks | oat milk, almond milk, coconut milk
                + is plant based, has vitamin d, has added calcium
            cocktail mixers | Beverages › Cocktail Mixers | cocktail mixer, margarita mix, simple syrup | 29
                + of real fruit juice, is alcohol free
            """,
    ),
    family(
        "grocery",
        _ROOT,
        price=26,
        options="flavor name:savory:2.08, size:ounces:6",
        attributes="is gluten free, is non gmo, is certified organic, is low sodium, is kosher certified, has no preservatives, is vegan, "
        "of simple ingredients, is sugar free, is keto friendly, is high fiber, is grain free, is paleo friendly, is plant based, "
        "is dairy free, is soy free, of natural ingredients, easy use",
        look="savory, rich, smoky, spicy, fine, hearty, mild, zesty, authentic, thick, aromatic, golden",
        stuff="garlic, tomatoes, basil, cumin, olive oil, onion, red chili, lemon, oregano, wheat, coriander",
        part="aroma, texture, grain, color, flavor, grind, spice level, finish",
        extra="a glass jar, a squeeze bottle, a resealable pouch, a gift crate, recipe ideas, a grinder lid, a bulk bag, an easy open can",
        use="soups, grilling, weeknight dinners, salads, baking, marinades, meal prep, stir fries, tacos, holiday tables",
        wares="""
            spices | Pantry › Spices | spice blend, ground cumin, seasoning mix | 20
                + has a shaker top, is salt free, is freshly ground
            sauces | Pantry › Sauces | hot sauce, pasta sauce, barbecue sauce | 23
                + of sun dried tomatoes, is slow cooked, is msg free
            salad dressings | Pantry › Dressings | salad dressing, vinaigrette, ranch dressing | 22
                + is cold pressed, is msg free
            cooking oils | Pantry › Oils | ~olive oil, avocado oil, cooking oil | 32
                + is extra virgin, is cold pressed
            pastas | Pantry › Pasta | ~pasta, spaghetti, egg noodles
                + of durum wheat, easy prepare
            rice | Pantry › Rice & Grains › Rice | ~rice, jasmine rice, brown rice
                + easy prepare, is long grain
            beans | Pantry › Rice & Grains › Beans | black beans, red lentils, chickpeas
                + is ready to eat, is hand picked
            flours | Pantry › Baking › Flours | ~flour, almond flour, bread flour
                + is stone ground, is unbleached
            nut butters | Pantry › Spreads › Nut Butters | nut butter, peanut butter, almond butter
                + has no stir texture, is salt free
            jams | Pantry › Spreads › Jams | ~jam, fruit spread, orange marmalade | 24
                + of real fruit, is hand picked
            syrups | Pantry › Baking › Syrups | syrup, maple syrup, honey syrup | 26
                + is hand picked, of pure cane sugar
            canned fish | Pantry › Canned › Fish | tuna cans, canned sardines, smoked salmon | 34
                + is wild caught, is ready to eat, has olive oil
            soups | Pantry › Canned › Soups | soup, noodle soup, soup mix
                + is slow cooked, is ready to eat, is msg free
            """,
    ),
    family(
        "grocery",
        _ROOT,
        price=43,
        options="size:ounces:5, flavor name:savory:1.56, style:sets:0.47",
        attributes="is ready to eat, is gluten free, is non gmo, has no added sugar, is fat free, is kosher certified, is hand crafted, "
        "is individually packed, is lactose free, is high protein, is certified organic, is low calorie, is low sodium, "
        "has no preservatives, of natural ingredients, is low fat",
        look="fresh, tender, creamy, juicy, gourmet, smoked, sharp, festive, sliced, mild, ripe, traditional",
        stuff="cheddar, rosemary, apples, honey, figs, black pepper, cream, mango, herbs, hickory smoke, walnuts",
        part="rind, crust, slice, marinade, center, texture, glaze, filling",
        extra="a wooden board, a cooler box, ice packs, a ribbon, small trays, a cheese knife, paper wrap, a welcome card",
        use="family gatherings, picnics, holidays, sympathy gifts, cheese boards, sandwiches, tailgates, toddlers, birthdays, quick lunches",
        wares="""
            cheeses | Fresh & Chilled › Cheese | cheddar cheese, cheese wheel, cheese spread
                + is slow aged, of real cream, is hand cut
            meats | Fresh & Chilled › Meat | smoked ham, beef steaks, summer sausage | 60
                + is fully cooked, is grass fed, is nitrate free, is pasture raised
            meat substitutes | Fresh & Chilled › Meat Substitutes | veggie burgers, plant sausage, soy chunks | 37
                + is plant based, is fully cooked, is soy free
            dried fruits | Snacks & Sweets › Dried Fruits | dried mango, dried apricots, raisins | 26
                + is unsulfured, is naturally sweet, is freeze dried
            gift baskets | Gifts › Gift Baskets | gift basket, snack box, care package | 60
                + for gift giving, for sympathy, is hand packed
            applesauce | Fresh & Chilled › Fruit Cups | ~applesauce, fruit cups, fruit pouches | 20
                + is naturally sweet, is unsweetened
            yogurts | Fresh & Chilled › Yogurt | ~yogurt, greek yogurt, yogurt starter | 22
                + has live cultures, of real cream, is plant based
            breads | Bakery › Breads | ~bread, pita bread, tortilla wraps | 29
                + is stone baked, is sprouted, is baked fresh
            """,
    ),
)
