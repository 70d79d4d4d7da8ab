"""Word tables of the generated catalogue: clothing and shoes."""

from __future__ import annotations

from .words import family

_ROOT = "Clothing & Shoes"
_FIT = "color:cloth:5, size:letters:7, fit type:fits:0.25"

FAMILIES = (
    family(
        "fashion",
        _ROOT,
        price=16,
        options=_FIT,
        attributes="is machine washable, is slim fit, is loose fit, is classic fit, of polyester spandex, of soft cotton, is quick drying, "
        "for daily wear, is hand washable, is moisture wicking, easy iron, is tagless, is wrinkle resistant, of organic cotton, "
        "has a needle stitched hem, is officially licensed, has a drop shoulder, is light weight",
        look="soft, lightweight, breathable, casual, fitted, relaxed, stretchy, airy, plain, vintage, everyday, layered",
        stuff="cotton, jersey, linen, modal, viscose, poplin, bamboo knit, chambray, waffle knit, cotton blend",
        part="collar, hem, cuff, yoke, neckline, placket, shoulder seam, side seam, buttonhole",
        extra="two front pockets, a curved hem, ribbed trim, a printed back, contrast stitching, roll up cuffs, side slits, a pleated back, "
        "a woven label",
        use="work, weekends, vacation, the gym, date nights, school, summer parties, office days, layering, concerts",
        wares="""
            men's t-shirts | Men › Shirts › T-Shirts | t-shirt, crew tee, graphic tee
                + has short sleeve(s), has long sleeve(s), has a crew neck, has a v neck, has a chest pocket
            men's polo shirts | Men › Shirts › Polos | polo shirt, golf polo, pique polo | 21
                + has short sleeve(s), has long sleeve(s), has a button closure
            men's dress shirts | Men › Shirts › Dress Shirts | dress shirt, button down shirt, oxford shirt | 28
                + has long sleeve(s), has a button closure, has a chest pocket, has french cuff(s)
            men's casual shirts | Men › Shirts › Casual Shirts | casual shirt, flannel shirt, beach shirt | 22
                + has short sleeve(s), has long sleeve(s), has a button closure, has a chest pocket
            men's henleys | Men › Shirts › Henleys | henley, henley shirt, thermal henley
                + has long sleeve(s), has short sleeve(s), has a button closure
            men's tank tops | Men › Shirts › Tank Tops | tank top, muscle tank, workout tank | 13
                + is sleeveless, has a racer back
            women's blouses | Women › Tops › Blouses | blouse, chiffon blouse, wrap blouse | 19
                + has long sleeve(s), has a v neck, has puff sleeve(s), has a button closure
            women's t-shirts | Women › Tops › T-Shirts | t-shirt, cropped tee, graphic tee | 14
                + has short sleeve(s), has a crew neck, has a v neck
            women's tunics | Women › Tops › Tunics | tunic, tunic top, swing tunic | 18
                + has long sleeve(s), has a v neck, has side pocket(s)
            women's tank tops | Women › Tops › Tank Tops | tank top, camisole, sleeveless top | 12
                + is sleeveless, has a racer back, has spaghetti strap(s), has a built in bra
            women's bodysuits | Women › Tops › Bodysuits | bodysuit, bodysuit top, wrap bodysuit | 16
                + has long sleeve(s), has a snap closure, has a square neck
            """,
    ),
    family(
        "fashion",
        _ROOT,
        price=31,
        options=_FIT,
        attributes="is machine washable, is fleece lined, is winter warm, is slim fit, is relaxed fit, for everyday wear, is dry clean only, "
        "is light weight, of recycled polyester, has ribbed cuff(s), for cold weather, is loose fit, is hand washable, "
        "is wrinkle resistant",
        look="warm, cozy, chunky, oversized, padded, thick, hooded, cropped, brushed, heavyweight, snug, knitted",
        stuff="wool, fleece, down, corduroy, sherpa, nylon, cashmere blend, twill, denim, acrylic knit",
        part="hood, collar, cuff, zipper, lining, hem, shoulder seam, pocket flap, waistband",
        extra="a kangaroo pocket, two hand pockets, a storm flap, thumb holes, a chin guard, snap buttons, a two way zipper, a detachable belt, "
        "toggle buttons",
        use="winter walks, camping, cool evenings, travel, hiking, skiing, football games, the office, autumn days, dog walks",
        wares="""
            men's sweaters | Men › Knitwear › Sweaters | sweater, cable knit sweater, pullover sweater
                + has long sleeve(s), of merino wool, has a high neck, has a crew neck
            men's hoodies | Men › Sweatshirts › Hoodies | hoodie, pullover hoodie, zip hoodie | 27
                + has long sleeve(s), has a zipper closure, has an adjustable hood, is moisture wicking
            men's jackets | Men › Outerwear › Jackets | jacket, bomber jacket, trucker jacket | 45
                + is water resistant, is wind proof, has a zipper closure, has an adjustable hood, has inside pocket(s)
            men's coats | Men › Outerwear › Coats | coat, pea coat, parka | 65
                + is water resistant, is wind proof, has faux fur, has a button closure, has inside pocket(s), has a quilted lining
            men's vests | Men › Outerwear › Vests | vest, puffer vest, utility vest | 30
                + is sleeveless, is water resistant, has a zipper closure, has inside pocket(s), has a quilted lining
            women's cardigans | Women › Knitwear › Cardigans | cardigan, open cardigan, duster cardigan | 26
                + has long sleeve(s), has an open front, has a button closure, of merino wool
            women's sweaters | Women › Knitwear › Sweaters | sweater, turtleneck sweater, batwing sweater | 28
                + has long sleeve(s), has a high neck, has bat wing sleeve(s), of merino wool
            women's hoodies | Women › Sweatshirts › Hoodies | hoodie, cropped hoodie, fleece hoodie | 24
                + has long sleeve(s), has a zipper closure, has an adjustable hood, is moisture wicking
            women's coats | Women › Outerwear › Coats | coat, trench coat, wrap coat | 50
                + is water resistant, is wind proof, has faux fur, has a tie waist, has inside pocket(s)
            women's jackets | Women › Outerwear › Jackets | jacket, denim jacket, rain jacket | 38
                + is water resistant, is wind proof, has a zipper closure, has an adjustable hood
            women's vests | Women › Outerwear › Vests | vest, quilted vest, sherpa vest | 25
                + is sleeveless, has faux fur, has a zipper closure, has a quilted lining
            """,
    ),
    family(
        "fashion",
        _ROOT,
        price=23,
        options="color:cloth:5, size:letters:5, size:waist:3:jeans/pants, fit type:fits:0.25",
        attributes="is machine washable, has an elastic waist, is slim fit, is relaxed fit, is quick drying, of cotton spandex, is four way stretch, "
        "for daily wear, is regular fit, is moisture wicking, is wrinkle resistant, is light weight",
        look="stretchy, faded, distressed, cropped, tapered, comfortable, lightweight, stone washed, pleated, baggy, casual, slimming",
        stuff="denim, twill, cotton, ponte knit, linen, corduroy, nylon, french terry, chino cloth, rayon",
        part="waistband, inseam, hem, belt loop, side seam, pocket, cuff, fly, knee",
        extra="five pockets, a hidden key pocket, back pockets, ankle zippers, frayed hems, a wide band, reflective piping, side stripes, "
        "rolled cuffs",
        use="yoga, work, running, hiking, errands, school, golf, the beach, travel days, lounging",
        wares="""
            men's jeans | Men › Pants › Jeans | jeans, denim jeans, carpenter jeans | 32
                + is straight leg, has a zipper fly, of stretch denim, is boot cut, is low rise
            men's shorts | Men › Pants › Shorts | shorts, cargo shorts, gym shorts | 20
                + has a drawstring closure, has cargo pocket(s), has a zipper fly, has a flat front
            men's pants | Men › Pants › Casual Pants | pants, chino pants, cargo pants | 27
                + has a flat front, has cargo pocket(s), has a zipper fly, is straight leg
            men's sweatpants | Men › Activewear › Sweatpants | sweatpants, jogger sweatpants, track pants
                + has a drawstring closure, has side pocket(s), is fleece lined
            women's jeans | Women › Pants › Jeans | jeans, skinny jeans, mom jeans | 30
                + is straight leg, of stretch denim, is boot cut, is low rise, has a high waist, is wide leg
            women's leggings | Women › Activewear › Leggings | leggings, yoga leggings, capri leggings | 18
                + has a high waist, has tummy control, is squat proof, has a gusset crotch, has side pocket(s)
            women's shorts | Women › Pants › Shorts | shorts, bike shorts, bermuda shorts | 16
                + has a high waist, has tummy control, has a drawstring closure
            women's skirts | Women › Skirts › Casual Skirts | skirt, midi skirt, pencil skirt | 20
                + has a high waist, is knee length, has a back zipper
            women's pants | Women › Pants › Casual Pants | pants, palazzo pants, dress pants | 22
                + has a high waist, is wide leg, is straight leg, has a drawstring closure
            """,
    ),
    family(
        "fashion",
        _ROOT,
        price=30,
        options="color:cloth:5, size:letters:5, size:numbers:3:women's, fit type:fits:0.11:men's",
        attributes="is hand washable, is slim fit, has side pocket(s), is dry clean only, for wedding guests, of stretch crepe, is machine washable, "
        "is wrinkle resistant, has a satin lining, is regular fit, for formal events, is light weight, of recycled polyester, "
        "for special occasions",
        look="elegant, flowy, formal, fitted, pleated, ruched, backless, sequined, tailored, floral, chic, layered",
        stuff="chiffon, satin, lace, velvet, crepe, tulle, wool blend, jacquard, mesh, georgette",
        part="bodice, neckline, hem, lapel, waist seam, strap, lining, slit, sleeve",
        extra="a side slit, a removable belt, padded shoulders, a keyhole back, covered buttons, a full lining, a deep pocket, lace panels, "
        "a satin sash",
        use="cocktail parties, proms, weddings, church, graduation, summer nights, business meetings, banquets, cruises, photo shoots",
        wares="""
            women's dresses | Women › Dresses › Casual Dresses | dress, maxi dress, wrap dress
                + has spaghetti strap(s), has an a line cut, is knee length, has long sleeve(s), has a v neck
                + has a ruffle hem, has a tie waist, has a high waist
            women's evening dresses | Women › Dresses › Evening Dresses | evening dress, cocktail dress, evening gown | 48
                + is floor length, is off shoulder, is sleeveless, has a back zipper, for evening parties
                + has a lace trim, of polyester satin, has a v neck
            women's jumpsuits | Women › Jumpsuits & Rompers › Jumpsuits | jumpsuit, romper, wide leg jumpsuit | 24
                + has spaghetti strap(s), is sleeveless, has a tie waist, has a v neck, has a back zipper, has a high waist
            women's blazers | Women › Suits › Blazers | blazer, work blazer, cropped blazer | 34
                + has long sleeve(s), has notched lapel(s), has a one button closure
            men's suits | Men › Suits › Suit Sets | suit, two piece suit, wedding suit | 90
                + has notched lapel(s), has a flat front, has a two button closure
            men's blazers | Men › Suits › Blazers | blazer, sport coat, dinner jacket | 60
                + has notched lapel(s), has a two button closure, has long sleeve(s), has a double vent
            men's tuxedo shirts | Men › Suits › Tuxedo Shirts | tuxedo shirt, pleated shirt, formal shirt
                + has long sleeve(s), has french cuff(s), has a wing collar, has a pleated front
            """,
    ),
    family(
        "fashion",
        _ROOT,
        price=16,
        options="color:cloth:5, size:letters:7:!bras, size:bras:7:bras, fit type:fits:0.06:men's",
        attributes="is machine washable, is hand washable, is moisture wicking, of cotton modal, has a tag free label, for everyday wear, "
        "is light weight, is super soft, of bamboo viscose, is fade resistant, is odor resistant, is hypoallergenic, is four way stretch, "
        "of organic cotton",
        look="silky, seamless, soft, sheer, breathable, stretchy, comfortable, cheeky, padded, lacy, cozy, lightweight",
        stuff="cotton, satin, modal, microfiber, lace, nylon, flannel, bamboo, spandex, jersey",
        part="waistband, cup, strap, leg opening, toe seam, lining, hem, gusset, band",
        extra="a matching bag, a small bow, a contrast waistband, side ties, a button front, a drawcord, flat seams, a shawl collar, a hidden pocket",
        use="sleeping, lazy mornings, the pool, the beach, travel, workouts, gifts, cold nights, long flights, honeymoons",
        wares="""
            men's underwear | Men › Underwear › Boxer Briefs | boxer briefs, trunks, underwear briefs | 19
                + has a front fly, has an elastic waistband, is quick drying, has a contour pouch
            men's pajamas | Men › Sleepwear › Pajamas | pajamas, pajama set, pajama pants | 23
                + for sleep and lounge, has an elastic waistband, has long sleeve(s), has a button closure
            men's robes | Men › Sleepwear › Robes | robe, bath robe, hooded robe | 30
                + has long sleeve(s), for sleep and lounge, has a tie waist
            men's socks | Men › Socks › Casual Socks | socks, crew socks, athletic socks | 12
                + has an arch band, has a cushioned heel, is quick drying, has a reinforced toe
            men's swim trunks | Men › Swimwear › Trunks | swim trunks, board shorts, swim shorts | 18
                + has a mesh lining, is quick drying, has an elastic waistband, has side pocket(s)
            women's bras | Women › Lingerie › Bras | bra, sports bra, push up bra
                + has an underwire, is wire free, has adjustable strap(s), has removable pad(s), has a lace trim, has a front closure
            women's nightgowns | Women › Sleepwear › Nightgowns | nightgown, night shirt, sleep dress
                + for sleep and lounge, has a lace trim, of soft satin, has spaghetti strap(s), has short sleeve(s)
            women's pajamas | Women › Sleepwear › Pajamas | pajamas, pajama set, sleep shorts | 21
                + for sleep and lounge, has an elastic waistband, of soft satin, has a button closure
            women's socks | Women › Socks › Casual Socks | socks, ankle socks, knee high socks | 11
                + has an arch band, has a cushioned heel, has a non slip sole
            women's tights | Women › Socks › Tights | tights, fishnet tights, pantyhose | 11
                + has tummy control, has a reinforced toe, has a lace trim, is run resistant
            women's swimsuits | Women › Swimwear › One Pieces | swimsuit, one piece swimsuit, bikini set | 22
                + has tummy control, has removable pad(s), is chlorine resistant, is high cut, has adjustable strap(s), is quick drying
            women's cover ups | Women › Swimwear › Cover Ups | cover up, beach kimono, beach dress | 17
                + is quick drying, has an open front, has side pocket(s), has a lace trim
            """,
    ),
    family(
        "fashion",
        _ROOT,
        price=36,
        options="color:cloth:5, size:shoes:7, style:sets:0.01",
        attributes="has a rubber sole, has a memory foam insole, is slip resistant, has arch support, of genuine leather, of faux leather, "
        "is light weight, has a non marking tread, of breathable mesh, is vegan friendly, has an ethylene vinyl sole, is odor resistant, "
        "has a wide toe box, for everyday wear, is machine washable, has a cushioned footbed",
        look="comfortable, sturdy, lightweight, cushioned, casual, flexible, breathable, pointed, chunky, dressy, wide, durable",
        stuff="suede, leather, canvas, mesh, nubuck, knit, wool felt, patent leather, cork, microsuede",
        part="heel, tongue, insole, toe box, ankle collar, upper, eyelet, midsole, buckle",
        extra="a pull tab, a side zipper, a removable insole, contrast laces, a stacked heel, a penny strap, hook and loop straps, "
        "metal eyelets, a fur cuff",
        use="walking, running, nursing shifts, hiking, the office, gardening, weddings, standing all day, travel, the house",
        wares="""
            men's sneakers | Men › Shoes › Sneakers | sneakers, canvas sneakers, tennis shoes | 43
                + has lace up closure, has a low top, has a padded collar, has shock absorption
            men's running shoes | Men › Shoes › Athletic Shoes › Running | running shoes, trail runners, athletic shoes | 50
                + has lace up closure, has shock absorption, for plantar fasciitis, has a padded collar
            men's boots | Men › Shoes › Boots | boots, work boots, chelsea boots | 60
                + has a steel toe, is water proof, is oil resistant, has lace up closure
            men's loafers | Men › Shoes › Loafers | loafers, penny loafers, driving moccasins
                + is slip on, is closed toe, is oil resistant
            men's sandals | Men › Shoes › Sandals | sandals, flip flops, fisherman sandals | 25
                + is open toe, has hook closure, is water proof, is slip on
            men's slippers | Men › Shoes › Slippers | slippers, house slippers, moccasin slippers | 20
                + is slip on, has faux fur, is closed toe
            men's hiking shoes | Men › Shoes › Outdoor Shoes | hiking shoes, trekking shoes, hiking boots | 55
                + is water proof, has lace up closure, has shock absorption, has a padded collar
            women's sneakers | Women › Shoes › Sneakers | sneakers, platform sneakers, walking shoes
                + has lace up closure, is slip on, has a platform sole, has shock absorption
            women's boots | Women › Shoes › Boots | boots, ankle boots, riding boots | 47
                + has a block heel, has faux fur, is water proof, has lace up closure
            women's flats | Women › Shoes › Flats | flats, ballet flats, mary janes | 26
                + is slip on, is closed toe, has an ankle strap
            women's pumps | Women › Shoes › Pumps | pumps, stiletto pumps, block heels
                + has a high heel, is closed toe, has an ankle strap, has a pointed toe
            women's sandals | Women › Shoes › Sandals | sandals, wedge sandals, gladiator sandals | 27
                + is open toe, has an ankle strap, has a platform sole, is slip on
            women's slippers | Women › Shoes › Slippers | slippers, scuff slippers, slipper boots | 18
                + has faux fur, is slip on, is open toe
            women's clogs | Women › Shoes › Clogs | clogs, garden clogs, nursing clogs | 30
                + is slip on, is oil resistant, is closed toe, is water proof
            women's oxfords | Women › Shoes › Oxfords | oxfords, oxford shoes, saddle shoes
                + has lace up closure, has a low heel, is closed toe
            """,
    ),
)
