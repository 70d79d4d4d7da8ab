"""Which words of generated titles are no nouns. All others are: titles are made from our own tables, so these can be listed."""

from __future__ import annotations

OTHER_WORDS = frozenset(
    """
    a absorbing abstract activated added adjustable aged aging airless airy all and angled anti antique aromatic artificial assemble athletic
    authentic auto automatic backless backlit bad baggy baked based beige beveled black blank bleached blendable blown blue bold bonded boxed
    braided breathable bridal bright brightening broad brown brushed buildable built burgundy busy buttery cancelling canned carry carrying casual
    caught certified chapped cheeky chewy chic chunky clarifying classic clean clear clinically close closed coarse coastal coated cold colorful
    comfortable compact complete compostable contemporary cooked cooking cool cooling cordless covered cozy cracked crafted cranked creamy crisp
    crispy cropped crunchy curly curved cushioned daily damaged damp dark de decorative deep delicate deluxe dental detachable detangling dietary
    digital dimmable dipping distressed double down dramatic drawn dressy dried driven driving dry dual durable dusty easy eco edible effective
    efficient electric elegant ended engineered ergonomic essential everyday external extra facial faded fair fashioned fast faux fed festive
    filling fine firm first fitted five flat flexible floral flowy fluffy foaming foldable folding for formal four framed frayed free freestanding
    freeze french fresh freshly fried friendly front fruity full fully gentle genuine geometric glossy glowing glueless gourmet graceful graphic
    gray greasy great greek green ground handed hanging hard healthy hearty heavy heavyweight herbal hidden high highly hooded hot human
    hyaluronic hybrid hydrating hydraulic hypoallergenic iced immersive in included individually indoor industrial install instant insulated
    interdental ionic irritating isolating itchy ivory juicy khaki knit knitted lacy large lasting lavalier layered layering lazy leave led left
    licensed lighted lightly lightweight lined live lockable locking long loose loud low lubricating lumbar lush made magnetic matching matte
    mechanical medium mellow merino micellar mid mild minimalist minty mirrorless mixed modern moisturizing mountable mounted narrow natural
    naturally non not notched nourishing nude nutty of off officially oily old on one online only open operated optical oral organic original out
    outdoor oversized packed padded painted pale permanent petite picked pigmented pink pivoting plain plated pleated plumping plush pointed
    popped portable powered powerful precise prepare pressed printed professional proof protecting protective proven puffed pure purple quick
    quiet quilted radiant rated ready real rechargeable reclaimed reclining rectangular recyclable recycled red refillable reflective refreshing
    refurbished regular reinforced relaxed reliable removable remove rented repairing repellent replacement required resealable resistant
    responsive retardant retro reusable ribbed rich right ripe roasted rolled rolling roman round rounded royal rubbed ruched rugged rustic safe
    salted salty savory scented sculptural sealed seamless sectional sensitive sensual sequined sharp sheer shielded shimmering short shut sided
    silent silky simple single six skinny slatted sleek sleeveless sliced sliding slim slimming sloped slow small smart smoked smoky smooth
    smoothing snug soft solid sonic soothing sour sparkling special spicy spotting sprouted square stable stackable stacked stainless steady
    sticky stitched straight straightening streaming strengthening stretchy striped strong sturdy styling stylish subtle super surround swappable
    sweet swivel synthetic tagless tailored tall tan tangy tapered teal telescopic tempered ten tender tested textured the thick thickening three
    tilting tinted to toasted toxic traditional triple tufted turquoise twelve twenty two ultra unbleached under universal unsalted unscented
    unsulfured unsweetened up upholstered velvety vertical vintage vivid volumizing warm washable washed wavy weathered weighted weightless
    welcome wet white whole wholesome wicking wide wild wired wireless with without wooden woody woven wrapped x-large x-small xx-large yellow
    zesty
    """.split()
)
