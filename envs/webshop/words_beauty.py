"""Word tables of the generated catalogue: beauty and personal care."""

from __future__ import annotations

from .words import family

_ROOT = "Beauty & Care"

FAMILIES = (
    family(
        "beauty",
        _ROOT,
        price=21,
        options="size:fluid:5, color:skin:2:tanners/sunscreens/balms, scent:scents:1.6:body/hand/foot/lip, style:beauty:0.24:kits/masks, "
        "size:packs:1",
        attributes="is paraben free, is cruelty free, is fragrance free, is oil free, is dermatologist tested, of hyaluronic acid, of shea butter, "
        "has tea tree oil, for sensitive skin, is long lasting, of coconut oil, is alcohol free, is non greasy, has green tea extract, "
        "of natural ingredients, is clinically proven, is travel size, is non toxic, is eco friendly",
        look="gentle, creamy, lightweight, rich, cooling, daily, soothing, brightening, hydrating, silky, nourishing, refreshing",
        stuff="aloe vera, rose water, jojoba oil, oat extract, cucumber, chamomile, squalane, niacinamide, honey, clay, argan oil",
        part="skin barrier, complexion, cheeks, forehead, elbows, hands, jaw line, pores, tired eyes",
        extra="a pump top, a glass dropper, a soft applicator, a recyclable tube, a spatula, an airless bottle, a screw lid, a refill pouch, "
        "a light scent",
        use="morning routines, night care, winter days, the shower, travel, teens, men and women, gifts, makeup prep, the beach",
        wares="""
            face creams | Skin Care › Face › Creams & Moisturizers | ~face cream, face moisturizer, night cream
                + for dry skin, for fine lines, is anti aging, for oily skin
            face washes | Skin Care › Face › Cleansers | ~face wash, facial cleanser, cleansing gel | 15
                + for oily skin, has vitamin c, is soap free
            face serums | Skin Care › Face › Serums | face serum, facial serum, ampoule serum | 24
                + has vitamin c, for fine lines, is anti aging, for dark spots
            face masks | Skin Care › Face › Masks | face mask, sheet mask, clay mask | 16
                + for oily skin, for dead skin, for dry skin
            eye creams | Skin Care › Eyes › Creams | eye cream, eye gel, under eye patches | 19
                + for dark circles, for fine lines, is anti aging
            body lotions | Skin Care › Body › Lotions | ~body lotion, body butter, body cream | 15
                + for dry skin, is quick absorbing
            body scrubs | Skin Care › Body › Scrubs | body scrub, sugar scrub, salt scrub | 18
                + for dead skin, of dead sea salt
            hand creams | Skin Care › Hands & Feet › Hand Creams | hand cream, hand lotion, hand balm | 12
                + for dry skin, is quick absorbing
            foot care | Skin Care › Hands & Feet › Foot Care | foot cream, foot peel, heel balm | 15
                + for dead skin, for cracked heels, for dry skin
            lip balms | Skin Care › Lips › Balms | lip balm, lip butter, lip mask | 10
                + has sun protection, for chapped lips
            sunscreens | Skin Care › Sun › Sunscreens | ~sunscreen, sun lotion, sunscreen spray | 17
                + is broad spectrum, is water resistant, is reef safe
            self tanners | Skin Care › Sun › Self Tanners | self tanner, tanning mousse, tanning drops | 23
                + is streak free, has a tinted base, is quick drying
            skin care kits | Skin Care › Sets & Kits | skin care kit, facial kit, skin care set | 35
                + for dry skin, for oily skin, is anti aging
            """,
    ),
    family(
        "beauty",
        _ROOT,
        price=14,
        options="color:lips:6:lip/blush/nail/eyeshadow/sets, color:skin:6:found/conceal, color:plain:4:mascara/eyeliner/brow, size:packs:0.8, "
        "style:beauty:0.28",
        attributes="is cruelty free, is long lasting, is paraben free, is fragrance free, is hypoallergenic, is vegan, is non toxic, "
        "is dermatologist tested, is gluten free, is travel size, of natural ingredients, is high quality, for sensitive skin, "
        "is lead free, is refillable, easy use",
        look="creamy, bold, velvety, sheer, shimmering, natural, soft, blendable, lightweight, radiant, nude, satin",
        stuff="vitamin e, mica, beeswax, rice powder, rosehip oil, silica, cocoa butter, mango butter, kaolin, pearl powder",
        part="lips, lashes, brows, lids, cheekbones, nails, lash line, waterline, t-zone",
        extra="a built in mirror, a double ended brush, a twist up case, a soft tip, a magnetic case, a mini sponge, a slim wand, twelve shades, "
        "a snap lid",
        use="work, parties, weddings, stage makeup, beginners, photo shoots, school, evenings out, gifts, everyday looks",
        wares="""
            foundations | Makeup › Face › Foundation | ~foundation, liquid foundation, powder foundation | 16
                + has full coverage, has buildable coverage, of mineral powder, has a matte finish
            concealers | Makeup › Face › Concealers | concealer, concealer stick, color corrector | 12
                + has full coverage, for dark circles, has a matte finish
            blushes | Makeup › Face › Blush | blush, cream blush, powder blush
                + of mineral powder, is talc free, has buildable coverage, has a matte finish, is highly pigmented
            lipsticks | Makeup › Lips › Lipsticks | lipstick, liquid lipstick, lip crayon | 12
                + has a matte finish, is transfer resistant, is water proof, is highly pigmented
            lip glosses | Makeup › Lips › Glosses | lip gloss, plumping gloss, lip oil | 10
                + has a glossy finish, is non sticky, is highly pigmented
            mascaras | Makeup › Eyes › Mascara | mascara, volume mascara, fiber mascara | 12
                + is water proof, is smudge proof, for sensitive eyes, has castor oil
            eyeliners | Makeup › Eyes › Eyeliner | eyeliner, gel eyeliner, eyeliner pen | 10
                + is water proof, is smudge proof, has a precision tip, easy apply
            eyeshadow palettes | Makeup › Eyes › Palettes | eyeshadow palette, shimmer palette, makeup palette | 18
                + is talc free, easy apply, has a matte finish, is highly pigmented
            eyebrow pencils | Makeup › Eyes › Brows | eyebrow pencil, brow gel, brow pomade | 11
                + is water proof, is smudge proof, has a precision tip
            makeup removers | Makeup › Makeup Remover | makeup remover, micellar water, makeup wipes
                + for sensitive eyes, is alcohol free, is oil free
            makeup sets | Makeup › Sets & Kits | makeup set, makeup kit, beauty set | 30
                + easy apply, is highly pigmented
            nail polishes | Makeup › Nails › Polish | ~nail polish, gel polish, nail lacquer | 12
                + is quick drying, is chip resistant, has a glossy finish, easy remove
            """,
    ),
    family(
        "beauty",
        _ROOT,
        price=15,
        options="color:plain:6:!cotton/tweez/tattoo, size:packs:2, style:beauty:0.33:lashes/brushes/nail, size:counts:3:cotton/lashes/tattoo",
        attributes="is high quality, easy use, easy carry, easy clean, is travel size, has a storage case, for beauty salons, for sensitive skin, "
        "is eco friendly, is non toxic, is light weight, is long lasting, for daily use, is durable",
        look="portable, soft, professional, compact, reusable, delicate, sturdy, foldable, smooth, precise, lightweight, stylish",
        stuff="silicone, acrylic, bamboo, velour, glass, cotton, aluminum, microfiber, nylon, resin",
        part="handle, tip, bristles, lid, hinge, edge, grip, case, zipper",
        extra="a carrying pouch, a gift box, replacement heads, labels and a funnel, a mirror, a hanging hook, ten pieces, a cleaning brush, "
        "a drying stand",
        use="home salons, travel, beginners, daily care, nail artists, spa days, bridal makeup, the shower, gym bags, sensitive areas",
        wares="""
            makeup brushes | Tools & Accessories › Makeup Brushes | makeup brushes, brush set, kabuki brush
                + has soft bristle(s), has a wooden handle, of synthetic hair
            makeup sponges | Tools & Accessories › Sponges | makeup sponge, blender sponge, powder puff | 10
                + is latex free, is hand washable, is super soft
            false eyelashes | Tools & Accessories › Eyelashes | false eyelashes, lash clusters, magnetic lashes | 13
                + is latex free, of faux mink, has a cotton band
            tweezers | Tools & Accessories › Tweezers | tweezers, brow tweezers, tweezer set | 10
                + of stainless steel, has a slant tip, has a non slip grip
            makeup mirrors | Tools & Accessories › Mirrors | makeup mirror, vanity mirror, travel mirror | 29
                + is double sided, has a led light, has a metal stand
            cosmetic bags | Tools & Accessories › Bags & Cases | cosmetic bag, makeup bag, toiletry bag | 17
                + is water resistant, has double zipper(s), of vegan leather
            nail tools | Foot Hand & Nail Care › Nail Tools | nail drill, nail file, manicure set | 19
                + for nail art, of stainless steel, is rechargeable
            cotton pads | Tools & Accessories › Cotton Pads & Swabs | cotton pads, cotton swabs, cotton rounds | 10
                + is lint free, of organic cotton, is hypoallergenic
            refillable bottles | Tools & Accessories › Refillable Containers | spray bottle, travel bottles, pump bottle | 13
                + is bpa free, is leak proof, has a fine mist, of amber glass
            bath brushes | Bath & Body › Bathing Accessories | bath brush, body brush, loofah sponge | 12
                + has a long handle, has soft bristle(s), is double sided
            massage tools | Personal Care › Massage Tools | massage roller, scalp massager, gua sha tool | 18
                + of rose quartz, of food grade silicone, has a non slip grip
            tattoo supplies | Personal Care › Piercing & Tattoo | tattoo kit, tattoo needles, piercing kit | 28
                + of stainless steel, for permanent makeup
            """,
    ),
    family(
        "beauty",
        _ROOT,
        price=19,
        options="size:fluid:5, color:hair:9:dyes, scent:scents:1.6:!dyes, size:packs:1.5",
        attributes="is sulfate free, is paraben free, is cruelty free, for damaged hair, for dry hair, for curly hair, for natural hair, "
        "has argan oil, of coconut oil, has biotin, is color safe, is silicone free, of plant keratin, has tea tree oil, "
        "of black castor oil, is vegan, is alcohol free, for thick hair",
        look="moisturizing, volumizing, deep, nourishing, gentle, strengthening, clarifying, smoothing, rich, weightless, daily, repairing",
        stuff="rosemary oil, avocado oil, honey, oat protein, ginger root, rice water, hibiscus, aloe, silk protein, baobab oil, mint",
        part="scalp, ends, roots, curls, strands, edges, split ends, cuticle, hairline",
        extra="a pump bottle, a nozzle tip, gloves and a brush, a wide jar, a measuring cap, a spray top, a comb, a fresh scent, a heat cap",
        use="wash days, swimmers, protective styles, men and women, bleached hair, travel, summer, the whole family, braids, fine hair",
        wares="""
            shampoos | Hair Care › Shampoo | ~shampoo, dry shampoo, shampoo bar | 16
                + is anti frizz, for itchy scalp
            conditioners | Hair Care › Conditioner | ~conditioner, hair conditioner, conditioning cream | 17
                + is leave in, is anti frizz
            hair masks | Hair Care › Treatments › Masks | hair mask, deep conditioner, hair treatment
                + is leave in, is anti frizz
            hair oils | Hair Care › Treatments › Oils | ~hair oil, hair serum, hot oil treatment | 17
                + for hair growth, is heat protecting, is anti frizz
            hair dyes | Hair Care › Hair Color | ~hair dye, hair color, root touch up | 15
                + for gray coverage, is ammonia free, is long lasting
            styling creams | Hair Care › Styling Products | ~styling cream, hair gel, curl cream | 16
                + has a strong hold, is anti frizz, is heat protecting
            scalp treatments | Hair Care › Treatments › Scalp | scalp treatment, scalp scrub, scalp serum | 22
                + for itchy scalp, for hair growth, is leave in
            hair growth products | Hair Care › Hair Loss Products | hair growth serum, hair growth oil, thickening spray | 28
                + for hair growth, for hair loss, is clinically proven
            """,
    ),
    family(
        "beauty",
        _ROOT,
        price=28,
        options="color:hair:6:extensions/wigs, size:inches:3:extensions/wigs, color:plain:4:!extensions/wigs, size:packs:1:clips/headbands/brushes",
        attributes="is high quality, easy use, for thick hair, for hair styling, for hair salons, is light weight, is long lasting, easy clean, "
        "easy carry, for natural hair, is travel size, for curly hair, is durable",
        look="natural, professional, long, wavy, lightweight, silky, fast, elegant, cordless, straight, glueless, sparkling",
        stuff="tourmaline, ceramic, titanium, satin, acetate, velvet, rubber, remy fiber, boar bristle, alloy",
        part="barrel, cap, plate, blade, clasp, cord, comb teeth, parting, base",
        extra="eight guide combs, a heat glove, a travel pouch, a diffuser, elastic straps, extra clips, a digital display, a wig cap, "
        "a charging stand",
        use="short styles, braids, barber shops, dance shows, cosplay, bad hair days, toddlers, travel, brides, thick curls",
        wares="""
            hair extensions | Hair Care › Extensions & Wigs › Extensions | hair extensions, clip in extensions, braiding hair | 35
                + of human hair, of synthetic hair, has clip in wefts, is double drawn, is heat resistant
            wigs | Hair Care › Extensions & Wigs › Wigs | wig, bob wig, curly wig | 48
                + of human hair, of synthetic hair, has a lace front, is heat resistant, easy wear
            hair dryers | Hair Care › Styling Tools › Dryers | hair dryer, blow dryer, hot air brush | 45
                + has ionic technology, has a cool shot, has a swivel cord, has a quiet motor
            curling irons | Hair Care › Styling Tools › Curlers | curling iron, curling wand, hair curler | 35
                + has adjustable heat, has an auto shut off, has a swivel cord
            hair straighteners | Hair Care › Styling Tools › Straighteners | hair straightener, flat iron, straightening brush | 42
                + has ceramic plates, has adjustable heat, has an auto shut off, has ionic technology
            hair clippers | Hair Care › Hair Cutting Tools | hair clippers, beard trimmer, hair scissors | 37
                + is rechargeable, of stainless steel, is water proof, has a quiet motor
            hair clips | Hair Care › Hair Accessories › Clips | hair clips, claw clips, hair barrettes | 12
                + is non slip, for fine hair
            hair brushes | Hair Care › Hair Accessories › Brushes & Combs | hair brush, detangling brush, wide tooth comb | 13
                + is anti static, has a wooden handle, for wet hair
            salon chairs | Salon & Spa Equipment › Chairs | salon chair, barber chair, salon stool | 180
                + has a hydraulic pump, of faux leather, is heavy duty
            headbands | Hair Care › Hair Accessories › Headbands | headband, turban headband, spa headband | 11
                + is non slip, easy wear, is machine washable
            """,
    ),
    family(
        "beauty",
        _ROOT,
        price=28,
        options="size:fluid:6:!razors/removal, scent:scents:2.5:!razors, size:packs:1, color:plain:2:razors",
        attributes="is long lasting, is alcohol free, is travel size, is cruelty free, of essential oils, has natural fragrance, is paraben free, "
        "for sensitive skin, is sulfate free, is non irritating, for men and women, is dermatologist tested, is refillable, is vegan, "
        "is non toxic, is eco friendly, is high quality, for daily use, for gift giving, is hypoallergenic",
        look="fresh, woody, floral, sweet, warm, spicy, clean, bold, subtle, sensual, crisp, fruity",
        stuff="musk, bergamot, vetiver, white tea, tonka bean, cedarwood, vanilla orchid, pink pepper, iris, oakmoss",
        part="neck, wrists, underarms, jaw line, top note, base note, heart note, dry down, cap",
        extra="a gift box, a glass bottle, a mini spray, a velvet pouch, five blades, a lubricating strip, a magnetic cap, a sample vial, a stand",
        use="evenings, the office, first dates, sport, summer, anniversaries, birthdays, travel, hot days, everyday wear",
        wares="""
            women's perfumes | Fragrance › Women › Perfume | ~perfume, eau de parfum, perfume spray | 48
                + has a roll on ball, has a floral scent
            men's colognes | Fragrance › Men › Cologne | ~cologne, eau de toilette, cologne spray | 50
                + has a woody scent, has a fresh scent
            body mists | Fragrance › Body Mists | body mist, body spray, fragrance mist | 14
                + has a floral scent, has a fresh scent
            perfume sets | Fragrance › Sets | perfume set, fragrance set, perfume sampler | 41
            deodorants | Personal Care › Deodorants | ~deodorant, deodorant stick, roll on deodorant | 12
                + is aluminum free, is anti perspirant, is baking soda free, is stain free, has a twist up stick
            shaving creams | Shave & Hair Removal › Shaving Creams | ~shaving cream, shave gel, aftershave balm | 13
                + of organic jojoba, is non foaming
            razors | Shave & Hair Removal › Razors | razor, safety razor, razor blades | 21
                + has a moisture strip, has a pivoting head, of stainless steel
            hair removal | Shave & Hair Removal › Waxing | wax kit, wax strips, hair removal cream | 22
                + has a wax warmer, for coarse hair
            """,
    ),
    family(
        "beauty",
        _ROOT,
        price=13,
        options="size:packs:4, color:plain:3:brush/scrap/denture, flavor:flavors:3:paste/wash/floss",
        attributes="for bad breath, for sensitive teeth, for oral hygiene, is clinically proven, is alcohol free, is bpa free, easy use, "
        "has natural mint, for fresh breath, is vegan, is travel size, is cruelty free, easy carry, is eco friendly, is non toxic, "
        "is high quality, for daily use, for healthy gums",
        look="fresh, gentle, daily, minty, deep, compact, effective, natural, complete, soft, quick, bright",
        stuff="baking soda, aloe, clove oil, bamboo, silicone, myrrh, sea salt, spearmint, zinc, cranberry",
        part="gums, molars, tongue, enamel, gum line, handle, back teeth, braces, retainer",
        extra="a travel case, a tongue cleaner, four heads, a flip cap, a drying stand, refill rolls, a storage tin, a shade guide, a mirror",
        use="kids and adults, morning care, busy days, travel, braces, coffee drinkers, night time, smokers, dentures, the office",
        wares="""
            toothbrushes | Oral Care › Toothbrushes | toothbrush, electric toothbrush, bamboo toothbrush | 18
                + has soft bristle(s), has a two minute timer, is rechargeable
            kids' toothbrushes | Oral Care › Kids › Toothbrushes | toothbrush, training toothbrush, sonic toothbrush | 13
                + has soft bristle(s), has a two minute timer, is battery operated
            toothpaste | Oral Care › Toothpaste | ~toothpaste, whitening toothpaste, tooth powder
                + is fluoride free, is sls free, for teeth whitening, of activated charcoal, has xylitol, has coconut oil
            mouthwash | Oral Care › Mouthwash | ~mouthwash, mouth rinse, breath spray | 14
                + for dry mouth, is fluoride free, is sugar free
            dental floss | Oral Care › Floss & Picks | ~dental floss, floss picks, interdental brushes | 11
                + has natural wax, of activated charcoal, is gluten free
            teeth whitening kits | Oral Care › Teeth Whitening | teeth whitening kit, whitening strips, whitening pen | 27
                + for teeth whitening, is enamel safe, of activated charcoal, has a led light
            tongue scrapers | Oral Care › Tongue Cleaners | tongue scraper, tongue cleaner, tongue brush | 10
                + of stainless steel, has a non slip grip
            denture care | Oral Care › Denture Care | denture brush, denture case, denture cleaner | 12
                + for night guards, has soft bristle(s)
            """,
    ),
)
