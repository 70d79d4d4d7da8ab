"""Word tables of the generated catalogue: furniture and home."""

from __future__ import annotations

from .words import family

_ROOT = "Home & Garden"

FAMILIES = (
    family(
        "garden",
        _ROOT,
        price=290,
        options="color:finish:6, size:widths:4, style:decor:0.47",
        attributes="of solid wood, of engineered wood, easy assemble, easy clean, is space saving, has metal legs, has a wood finish, is heavy duty, "
        "has storage space, for small apartments, has a steel frame, is water resistant, is mid century modern, is scratch proof, "
        "has adjustable feet, is contemporary, is eco friendly, of reclaimed wood, is assembly required, has a high gloss finish, "
        "easy install",
        look="modern, rustic, narrow, sturdy, round, industrial, farmhouse, elegant, compact, minimalist, two tier, rectangular",
        stuff="pine, oak veneer, bamboo, iron, acacia, particle board, rattan, birch plywood, mango wood, concrete",
        part="top, leg, drawer, shelf, apron, edge, frame, corner, crossbar",
        extra="two drawers, a cable hole, a bottom shelf, rounded corners, a hidden compartment, non marking pads, a footrest, brass handles, "
        "a cup holder",
        use="entryways, studios, bedrooms, family dinners, homework, plants and books, board games, balconies, guest rooms, morning coffee",
        wares="""
            console tables | Furniture › Living Room › Tables › Console Tables | console table, sofa table, entryway table | 230
                + for the living room, has an open shelf, has a charging outlet
            coffee tables | Furniture › Living Room › Tables › Coffee Tables | coffee table, cocktail table, nesting table | 260
                + has a lift top, has a glass top, has a marble top, for the living room
            end tables | Furniture › Living Room › Tables › End Tables | end table, side table, accent table | 125
                + for the living room, has a charging outlet, has a glass top, has an open shelf
            dining tables | Furniture › Dining Room › Tables | dining table, kitchen table, pub table | 420
                + for the dining room, has a drop leaf, has a glass top, has a marble top
            dining sets | Furniture › Dining Room › Sets | dining set, dining table set, breakfast nook set | 580
                + for the dining room, has upholstered seat(s)
            desks | Furniture › Home Office › Desks | desk, writing desk, corner desk
                + for the home office, has an open shelf, has a drop leaf
            computer desks | Furniture › Home Office › Computer Desks | computer desk, gaming desk, standing desk | 300
                + for the home office, is height adjustable, has a charging outlet, has a keyboard tray
            nightstands | Furniture › Bedroom › Nightstands | nightstand, bedside table, night table | 140
                + has a charging outlet, has an open shelf, for small bedrooms
            drafting tables | Furniture › Home Office › Drafting Tables | drafting table, drawing desk, craft table
                + is height adjustable, has a tilting top, for the home office
            vanity tables | Furniture › Bedroom › Vanities | vanity table, makeup vanity, dressing table | 305
                + has a lighted mirror, has a cushioned stool, has a charging outlet
            """,
    ),
    family(
        "garden",
        _ROOT,
        price=255,
        options="color:finish:6, size:widths:3, style:decor:0.47",
        attributes="easy assemble, has adjustable shelves, has storage space, of engineered wood, of solid wood, has a metal frame, is space saving, "
        "is freestanding, has an anti tip kit, of powder coated steel, easy clean, is heavy duty, is water resistant, has a wood finish, "
        "is contemporary, is eco friendly, is mid century modern, is scratch proof, easy install",
        look="tall, narrow, open, rustic, sturdy, rolling, vertical, modern, stackable, wide, farmhouse, three tier",
        stuff="bamboo, pine, steel, mdf, iron, oak veneer, wicker, plywood, rubberwood, aluminum",
        part="shelf, door, drawer, back panel, hinge, handle, caster, rail, base",
        extra="five shelves, a shoe bench, a top rack, a pull out tray, hanging hooks, two cabinets, a spice rack, an umbrella stand, label holders",
        use="books, tvs up to 65 inches, shoes, pantries, hallways, cellars, files, dishes, toys, laundry rooms",
        wares="""
            bookcases | Furniture › Home Office › Bookcases | bookcase, book shelf, ladder shelf | 200
                + has an open back, for the living room, is wall mounted
            tv stands | Furniture › Living Room › TV Stands | tv stand, media console, entertainment center | 290
                + has cable management, has sliding door(s), for the living room, has an electric fireplace
            sideboards | Furniture › Dining Room › Sideboards | sideboard, buffet cabinet, credenza | 385
                + has sliding door(s), has soft close hinge(s), has wine storage, has a tempered glass door, for the dining room
            kitchen islands | Furniture › Kitchen › Islands & Carts | kitchen island, kitchen cart, serving cart | 350
                + has locking wheel(s), for small kitchens, has a drop leaf, has a towel rack
            bakers racks | Furniture › Kitchen › Bakers Racks | bakers rack, microwave stand, kitchen rack | 185
                + has wire basket(s), for small kitchens, has wine storage
            coat racks | Furniture › Entryway › Coat Racks | coat rack, coat stand, garment rack | 80
                + has coat hook(s), for the entryway, is wall mounted, has locking wheel(s)
            hall trees | Furniture › Entryway › Hall Trees | hall tree, entryway bench, coat tree
                + has coat hook(s), for the entryway, has a cushioned seat
            file cabinets | Furniture › Home Office › File Cabinets | file cabinet, filing cabinet, office cabinet | 235
                + has lockable drawer(s), has locking wheel(s), for the home office
            storage cabinets | Furniture › Storage › Cabinets | storage cabinet, china cabinet, bathroom cabinet
                + has soft close hinge(s), has a tempered glass door, is wall mounted, has lockable drawer(s)
            shoe racks | Furniture › Entryway › Shoe Racks | shoe rack, shoe shelf, shoe organizer | 65
                + for the entryway, is wall mounted, has a cushioned seat
            dressers | Furniture › Bedroom › Dressers | dresser, chest of drawers, fabric dresser | 260
                + has deep drawer(s), for the living room, for small bedrooms
            """,
    ),
    family(
        "garden",
        _ROOT,
        price=300,
        options="color:plain:6, style:decor:0.47, size:sets:1:!sofas/recliners",
        attributes="of faux leather, has high density foam, easy assemble, has a wood frame, has metal legs, is button tufted, of velvet fabric, "
        "is heavy duty, easy clean, is stain resistant, has solid wood legs, is mid century modern, is contemporary, is assembly required, "
        "is eco friendly, is space saving, has adjustable feet, is easy to move, of bonded leather",
        look="comfortable, plush, modern, upholstered, elegant, sturdy, wide, tufted, swivel, compact, cozy, ergonomic",
        stuff="linen, velvet, leatherette, mesh, chenille, beech wood, corduroy, boucle, steel",
        part="seat, backrest, leg, cushion, armrest, base, seam, footrest, frame",
        extra="a throw pillow, a footrest, rolling casters, a cup holder, two pillows, a side pocket, gold legs, a hidden zipper, floor glides",
        use="reading, gaming, small apartments, kitchen counters, nurseries, conference rooms, bay windows, guest rooms, long work days, naps",
        wares="""
            accent chairs | Furniture › Living Room › Chairs | accent chair, arm chair, barrel chair
                + for the living room, has nailhead trim, has padded armrest(s)
            bar stools | Furniture › Kitchen › Bar Stools | bar stool, counter stool, swivel stool | 200
                + has a swivel base, is height adjustable, has a low back, for small kitchens
            office chairs | Furniture › Home Office › Chairs | office chair, desk chair, gaming chair
                + has lumbar support, is height adjustable, has a swivel base, has padded armrest(s), has a high back
            sofas | Furniture › Living Room › Sofas | sofa, sectional couch, sleeper sofa | 820
                + for the living room, has a storage compartment, has memory foam
            ottomans | Furniture › Living Room › Ottomans | ottoman, storage ottoman, foot stool | 125
                + has a storage compartment, has nailhead trim, has a removable cover
            recliners | Furniture › Living Room › Recliners | recliner, rocker recliner, glider chair | 540
                + has a reclining back, has padded armrest(s), has lumbar support, has a remote control
            benches | Furniture › Entryway › Benches | bench, storage bench, window bench | 185
                + has a storage compartment, for the entryway, has nailhead trim
            dining chairs | Furniture › Dining Room › Chairs | dining chair, kitchen chair, side chair
                + for the dining room, has a high back, has nailhead trim
            """,
    ),
    family(
        "garden",
        _ROOT,
        price=420,
        options="size:beds:6, color:finish:5:!mattresses, style:decor:0.47:!mattresses",
        attributes="is heavy duty, is long lasting, is high density, is contemporary, is mid century modern, easy clean, is eco friendly, "
        "is hypoallergenic, for small bedrooms, is space saving, for guest rooms, is non toxic",
        look="sturdy, plush, firm, low, medium firm, modern, platform, breathable, tall, cozy, hybrid, classic",
        stuff="pine, linen, velvet, metal, latex, bamboo cover, gel foam, rubberwood, iron, polyester",
        part="headboard, slat, side rail, center leg, cover, edge, ladder, coil layer, footboard",
        extra="twelve slats, storage drawers, a zip cover, wing sides, a bookcase headboard, a safety rail, side handles, hook holes, non slip tape",
        use="couples, back sleepers, teens, dorm rooms, bunk rooms, side sleepers, attics, campers, rented flats, grandparents",
        wares="""
            beds | Furniture › Bedroom › Beds | platform bed, bunk bed, daybed
                + is box spring free, has under bed storage, has a trundle, has a steel frame, of solid wood, easy assemble, is assembly required
            bed frames | Furniture › Bedroom › Bed Frames | bed frame, metal bed frame, folding bed frame | 280
                + is box spring free, has a steel frame, of solid wood, is noise free, has a slatted base, easy assemble, has under bed storage
            mattresses | Furniture › Bedroom › Mattresses | mattress, foam mattress, hybrid mattress | 540
                + has memory foam, has gel cooling, has a pillow top, has pocket coil(s), is motion isolating
            headboards | Furniture › Bedroom › Headboards | headboard, upholstered headboard, panel headboard | 230
                + is button tufted, of faux leather, of solid wood, has led light(s), is height adjustable, easy assemble
            """,
    ),
    family(
        "garden",
        _ROOT,
        price=31,
        options="color:cloth:6, size:drapes:3:curtains/blinds/cloths, size:squares:3:pillows, size:rugs:3:rugs/mats/blankets, "
        "size:beds:3:comfort/sheet, style:decor:0.19",
        attributes="is machine washable, is super soft, easy clean, is stain resistant, is fade resistant, is eco friendly, of soft microfiber, "
        "is hypoallergenic, for home decor, is hand washable, is light weight, of recycled yarn, is long lasting, is high quality, "
        "is non toxic, for small spaces",
        look="soft, fluffy, woven, decorative, cozy, striped, lightweight, thick, boho, solid, textured, geometric",
        stuff="cotton, polyester, linen, velvet, wool, chenille, flannel, sherpa, faux silk, polypropylene",
        part="hem, border, backing, corner, seam, insert, pile, header, tassel",
        extra="two panels, matching tiebacks, twelve hooks, pom poms, corner ties, a gift ribbon, deep pockets, a rod pocket, two pillow shams",
        use="sofas, nurseries, bay windows, hallways, guest beds, patios, winter nights, dorm rooms, kitchens, pets",
        wares="""
            throw blankets | Textiles › Bedding › Throws | throw blanket, fleece blanket, knit throw | 33
                + has a fringe border, is all season, has double sided print, for the living room
            decorative pillows | Textiles › Pillows › Decorative | throw pillow, pillow cover, lumbar pillow | 21
                + has a hidden zipper, has double sided print, has a fringe border, for the living room
            curtains | Textiles › Windows › Curtains | curtains, window drapes, sheer curtains | 36
                + is blackout lined, is light filtering, has a grommet top, easy install, for the living room
            window blinds | Textiles › Windows › Blinds | window blinds, roman shade, roller shade | 45
                + has a cordless lift, is light filtering, easy install, has uv protection
            rugs | Textiles › Rugs › Area Rugs | area rug, shag rug, runner rug | 100
                + has a non slip backing, of natural jute, is high density, for the dining room, for the living room
            comforters | Textiles › Bedding › Comforters | comforter, comforter set, duvet cover | 65
                + is all season, of egyptian cotton, has double sided print
            sheet sets | Textiles › Bedding › Sheets | sheet set, bed sheets, fitted sheet | 40
                + of egyptian cotton, is wrinkle resistant, is breathable
            shower curtains | Textiles › Bath › Shower Curtains | shower curtain, bath curtain, shower liner | 23
                + is water repellent, is mildew resistant, easy install
            tablecloths | Textiles › Kitchen › Tablecloths | tablecloth, table runner, placemats | 21
                + is water repellent, for the dining room, is wrinkle resistant
            bath mats | Textiles › Bath › Mats | bath mat, bath rug, shower mat | 23
                + has a non slip backing, is quick drying, has memory foam
            """,
    ),
    family(
        "garden",
        _ROOT,
        price=75,
        options="color:finish:6, size:sets:1.5, style:decor:0.37",
        attributes="has a glass shade, easy install, has brushed nickel, is dimmable, for the living room, has clear glass, has a linen shade, "
        "has a bronze finish, has light bulbs included, is energy saving, of hand blown glass, is contemporary, is mid century modern, "
        "easy assemble, easy clean, is long lasting, is eco friendly, for the home office, has a metal base",
        look="modern, vintage, industrial, warm, bright, elegant, adjustable, rustic, slim, sculptural, soft, graceful",
        stuff="brass, ceramic, steel, wood, iron, crystal, rattan, resin, concrete, linen",
        part="shade, base, socket, cord, arm, canopy, pole, finial, switch",
        extra="two bulbs, an in line switch, three light heads, a foot switch, hanging chain, a wood accent, an adjustable cord, "
        "mounting hardware, a night mode",
        use="bedrooms, reading corners, kitchen islands, hallways, bed sides, stairs, porches, offices, nurseries, sloped ceilings",
        wares="""
            table lamps | Lighting › Lamps › Table Lamps | table lamp, bedside lamp, desk lamp | 60
                + has a pull chain, has a usb port, has a touch switch
            floor lamps | Lighting › Lamps › Floor Lamps | floor lamp, arc lamp, standing lamp | 115
                + has a weighted base, has a remote control, has a swing arm
            pendant lights | Lighting › Ceiling › Pendants | pendant light, hanging light, island light | 100
                + for dining rooms, has a metal cage, is height adjustable
            chandeliers | Lighting › Ceiling › Chandeliers | chandelier, ceiling light, crystal chandelier | 225
                + has a crystal drop, for dining rooms, is height adjustable
            wall sconces | Lighting › Wall › Sconces | wall sconce, wall lamp, wall light | 85
                + is wall mounted, is plug in, has a swing arm, has a pull chain
            vanity lights | Lighting › Wall › Vanity Lights | vanity light, bathroom light, mirror light | 110
                + for the bathroom, is damp rated, is wall mounted
            night lights | Lighting › Night Lights | night light, plug in light, kids lamp | 24
                + is plug in, has a motion sensor, has a touch switch, has a remote control
            """,
    ),
    family(
        "garden",
        _ROOT,
        price=37,
        options="color:cloth:5:!candles, size:pictures:5:art/mirror/frames, size:sets:2:!wallpapers/art, size:feet:2:wallpapers, "
        "style:decor:0.47:!candles, scent:scents:4:candles",
        attributes="for the living room, for home decor, for the bathroom, is hand crafted, easy clean, easy install, is eco friendly, "
        "for the dining room, is high quality, is contemporary, is non toxic, is light weight, for the home office, is long lasting, "
        "for bedrooms",
        look="abstract, rustic, decorative, modern, large, lush, elegant, colorful, small, vintage, geometric, tall",
        stuff="canvas, ceramic, glass, seagrass, wood, resin, metal, cotton rope, terracotta, beeswax",
        part="frame, rim, wick, stem, handle, face, base, surface, leaf",
        extra="a hanging kit, a gift box, a saucer, a cotton wick, wall hooks, a wooden stand, three pieces, moss and stones, a lid",
        use="mantels, offices, shelves, weddings, window sills, entryways, housewarming gifts, patios, nurseries, quiet evenings",
        wares="""
            wall art | Decor › Wall Art | ~wall art, canvas print, framed print | 48
                + is ready to hang, has a wood frame, of wall canvas, is hand painted, is fade proof
            mirrors | Decor › Mirrors | wall mirror, round mirror, floor mirror | 100
                + is wall mounted, has a wood frame, has a beveled edge, is shatter proof
            candles | Decor › Candles | candle, scented candle, pillar candles | 24
                + of soy wax, is lead free, has a wooden lid, is battery operated
            artificial plants | Decor › Plants › Artificial | artificial plant, faux tree, silk flowers | 38
                + is uv resistant, has a weighted pot
            planters | Decor › Plants › Planters | planter, plant pot, hanging planter | 32
                + has drainage hole(s), is self watering, has a metal stand
            vases | Decor › Vases | vase, flower vase, bud vase | 29
                + of recycled glass, is hand painted, is hand blown
            wall clocks | Decor › Clocks | wall clock, kitchen clock, pendulum clock | 33
                + has silent movement, is battery operated, easy hang
            picture frames | Decor › Frames | picture frame, photo frame, collage frame | 26
                + has a wood frame, is ready to hang, is shatter proof
            storage baskets | Decor › Baskets | storage basket, laundry basket, rope basket | 30
                + is hand woven, has a carry handle, has a removable liner
            wallpapers | Decor › Wallpaper | ~wallpaper, wall decals, wall stickers | 28
                + is peel and stick, is water proof, easy remove
            """,
    ),
)
