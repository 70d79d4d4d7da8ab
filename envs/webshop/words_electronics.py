"""Word tables of the generated catalogue: electronics."""

from __future__ import annotations

from .words import family

_ROOT = "Electronics"

FAMILIES = (
    family(
        "electronics",
        _ROOT,
        price=50,
        options="color:plain:6, style:gear:0.47, size:packs:0.6",
        attributes="has stereo sound, has a long battery life, is high definition, has a remote control, is wireless bluetooth, "
        "is plug and play, has high fidelity, has a usb port, has voice control, is light weight, has a carrying case, has an aux input, "
        "is high performance, is high quality, easy use, is long lasting, easy install",
        look="portable, powerful, crisp, compact, foldable, loud, vintage, slim, smart, clear, immersive, cordless",
        stuff="aluminum, abs plastic, memory foam, mesh fabric, walnut veneer, silicone, protein leather, carbon fiber",
        part="driver, ear cup, volume knob, speaker grille, battery, headband, tone arm, antenna, cabinet",
        extra="three ear tip sizes, a backlit display, eq presets, an optical cable, a mute switch, a wall bracket, a dust cover, "
        "preset stations, a charging case",
        use="parties, the shower, gaming, road trips, study rooms, bedrooms, movies, working out, campsites, vinyl lovers",
        wares="""
            headphones | Audio › Headphones › Over Ear | headphones, bluetooth headphones, studio headphones | 55
                + is noise cancelling, has a built in microphone, is hands free, has deep bass, easy pair, has fast charging
            earbuds | Audio › Headphones › Earbuds | earbuds, wireless earbuds, sport earbuds | 31
                + is noise cancelling, is water proof, has touch control, is hands free, has a built in microphone, has fast charging
            bluetooth speakers | Audio › Speakers › Bluetooth | bluetooth speaker, portable speaker, party speaker | 42
                + is water proof, has deep bass, is hands free, easy pair
            bookshelf speakers | Audio › Speakers › Bookshelf | bookshelf speakers, ceiling speakers, studio monitors | 175
                + is wall mountable, for home theaters, has a wood cabinet
            soundbars | Audio › Home Theater › Soundbars | soundbar, tv soundbar, sound bar | 160
                + has surround sound, is wall mountable, has deep bass, for home theaters
            home theater systems | Audio › Home Theater › Systems | home theater system, speaker system, surround system | 375
                + has surround sound, for home theaters, has deep bass
            clock radios | Audio › Radios › Clock Radios | clock radio, alarm clock, digital clock | 24
                + has dual alarm(s), has an fm tuner, has a battery backup
            portable radios | Audio › Radios › Portable Radios | portable radio, weather radio, boombox | 35
                + has an fm tuner, is hand cranked, has a weather alert
            turntables | Audio › Turntables | turntable, record player, vinyl player | 175
                + has a diamond needle, is belt driven, has built in speaker(s)
            cd players | Audio › CD Players | cd player, disc player, portable player | 65
                + has an fm tuner, is anti skip, has built in speaker(s)
            amplifiers | Audio › Receivers & Amplifiers | amplifier, stereo receiver, power amplifier | 220
                + has four channel(s), for home theaters, has phono input
            microphones | Audio › Microphones | microphone, condenser microphone, lavalier microphone | 41
                + is noise cancelling, has a mute button, has a shock mount
            """,
    ),
    family(
        "electronics",
        _ROOT,
        price=85,
        options="color:plain:4, size:screens:4:tele/screens/mounts, style:gear:0.47, size:packs:1:antennas/remote/mounts",
        attributes="is high definition, has a remote control, is plug and play, is easy to set up, is light weight, is long lasting, "
        "for home theaters, easy install, has usb port(s), has 1080p support, is energy saving, easy use, is high quality, "
        "is high performance, for living rooms",
        look="bright, slim, portable, smart, compact, sharp, universal, quiet, modern, outdoor, vivid, mini",
        stuff="aluminum, cold rolled steel, abs plastic, glass, pvc, polyester, copper, alloy",
        part="screen, lens, bracket, tuner, fan, cable, display, port, stand",
        extra="two hdmi ports, a tripod, a coaxial cable, mounting screws, a carry bag, a spare remote, an ethernet port, a signal amplifier, "
        "a cleaning cloth",
        use="movie nights, dorm rooms, bedrooms, the back yard, meetings, classrooms, travel trailers, sports fans, cord cutters, gaming",
        wares="""
            televisions | Video › Televisions | television, smart tv, led tv | 565
                + is ultra hd, has voice search, has high contrast, has dual band wifi, is wall mounted
            projectors | Video › Projectors | projector, mini projector, video projector | 205
                + has keystone correction, has built in speaker(s), for home cinema, has hdmi input, is high resolution
            projection screens | Video › Projection Screens | projection screen, projector screen, movie screen | 85
                + is wrinkle free, for home cinema, has high contrast
            streaming players | Video › Streaming Players | streaming player, tv box, streaming stick | 65
                + is ultra hd, has dual band wifi, has voice search, has a quad core
            blu-ray players | Video › Disc Players › Blu-ray | blu-ray player, disc recorder, media player | 175
                + is region free, is ultra hd, has hdmi input
            dvd players | Video › Disc Players › DVD | dvd player, portable dvd player, dvd recorder | 70
                + is region free, has a headphone jack, has built in speaker(s), has parental control
            video recorders | Video › Recorders | video recorder, vcr, tape player | 190
                + has a blank tape, has hdmi input, has a recording timer
            tv antennas | Video › Antennas | tv antenna, indoor antenna, digital antenna | 30
                + has a long range, has a signal booster, is weather proof
            remote controls | Video › Accessories › Remotes | replacement remote, universal remote, tv remote | 11
                + has batteries included, has voice search, is backlit
            tv mounts | Video › Accessories › Mounts | tv mount, wall mount, tv bracket | 39
                + is heavy duty, has full motion, is tilting, is wall mounted
            satellite receivers | Video › Satellite | satellite receiver, satellite dish, satellite finder | 100
                + has a dual tuner, is weather proof
            """,
    ),
    family(
        "electronics",
        _ROOT,
        price=75,
        options="color:plain:5, size:feet:3:backdrops, style:gear:0.56",
        attributes="is high resolution, is water proof, is light weight, is weather sealed, for digital photography, has wireless control, "
        "is shock proof, easy use, easy install, is high performance, is high quality, is battery powered, has a carrying case, "
        "easy carry",
        look="compact, sharp, rugged, steady, professional, portable, clear, outdoor, dimmable, foldable, digital, telescopic",
        stuff="aluminum, magnesium alloy, nylon, polyester, glass, rubber armor, vinyl, canvas",
        part="lens, sensor, shutter, ball head, viewfinder, strap, eyepiece, battery door, filter thread",
        extra="two batteries, a memory card, a lens cloth, a phone adapter, a soft pouch, a mounting plate, color filters, a remote shutter, "
        "a neck strap",
        use="vlogging, bird watching, newborn photos, wildlife, travel, front doors, concerts, street photography, studio portraits, hunting",
        wares="""
            digital cameras | Cameras › Digital Cameras | digital camera, compact camera, mirrorless camera | 305
                + has optical zoom, has image stabilization, has high speed shooting, has fast focus
            action cameras | Cameras › Action Cameras | action camera, sports camera, underwater camera | 110
                + has image stabilization, has a wide angle, has 4k video
            instant cameras | Cameras › Instant & Film | instant camera, film camera, film roll | 85
                + has a self timer, has a built in flash
            security cameras | Cameras › Security › Cameras | security camera, dome camera, baby monitor | 65
                + has motion detection, has night vision, has two way audio, has a wide angle
            trail cameras | Cameras › Security › Trail Cameras | trail camera, game camera, wildlife camera | 75
                + has motion detection, has night vision, has a fast trigger
            camera lenses | Cameras › Lenses | camera lens, zoom lens, macro lens | 270
                + is low dispersion, has fast focus, has a dust cap, has a wide angle
            camera flashes | Cameras › Flashes & Lights | camera flash, speed light, flash trigger | 90
                + has adjustable brightness, has a tilting head, is rechargeable
            ring lights | Cameras › Studio Lights | ring light, video light, softbox light | 37
                + has adjustable brightness, has a phone holder, has three color modes
            tripods | Cameras › Tripods | tripod, monopod, travel tripod | 44
                + of carbon fiber, has a 360 degree head, is quick release
            camera bags | Cameras › Bags & Cases | camera bag, camera backpack, lens case | 42
                + is water resistant, has padded divider(s), has a padded strap
            binoculars | Cameras › Optics › Binoculars | binoculars, compact binoculars, spotting scope | 85
                + is fog proof, of tempered optics, has a wide field
            photo backdrops | Cameras › Studio › Backdrops | photo backdrop, photography background, backdrop stand | 20
                + is wrinkle free, is hand washable, is non reflective
            """,
    ),
    family(
        "electronics",
        _ROOT,
        price=16,
        options="color:plain:6, color:cloth:4:cases/bands, size:watch:5:watch, style:gear:0.28, size:packs:1:protectors/chargers, size:memory:3:cell",
        attributes="easy install, is water resistant, is heavy duty, is non slip, is scratch resistant, is high quality, is light weight, "
        "is long lasting, easy use, easy carry, is high performance, is shock proof, is eco friendly, is dust proof, is durable",
        look="slim, clear, rugged, sleek, portable, soft, glossy, universal, magnetic, compact, flexible, elegant",
        stuff="silicone, polycarbonate, leather, nylon, metal, glass, aluminum, rubber",
        part="clasp, bezel, camera cutout, corner, screen, button, charging port, hinge, band",
        extra="a wrist strap, an alignment frame, two spare pins, a ring holder, three cables, a wall plug, a cleaning kit, a suction cup, "
        "a sliding cover",
        use="running, car dashboards, desks, travel, kids, seniors, hiking, night stands, the gym, gifts",
        wares="""
            cell phones | Phones › Cell Phones | cell phone, smartphone, flip phone | 305
                + is dual sim, has a 4g network, has fast charging, has optical zoom
            phone cases | Phones › Accessories › Cases | phone case, wallet case, bumper case | 13
                + is drop proof, has a built in stand, has a card holder, is wireless charging, of genuine leather
            screen protectors | Phones › Accessories › Screen Protectors | screen protector, privacy screen, camera protector | 9
                + is case friendly, of tempered glass, is anti fingerprint, is bubble free
            phone chargers | Phones › Accessories › Chargers | phone charger, car charger, charging pad | 16
                + has fast charging, is wireless charging, has a usb c port
            charging stations | Phones › Accessories › Stations | charging station, charging dock, charging stand | 31
                + is wireless charging, has fast charging, has led display
            power banks | Phones › Accessories › Power Banks | power bank, portable charger, battery pack | 25
                + has a large capacity, has fast charging, has a usb c port, has led display
            phone mounts | Phones › Accessories › Mounts | phone mount, car mount, phone holder | 15
                + is hands free, has a one hand release, has strong suction
            smartwatches | Wearables › Smartwatches | smartwatch, fitness tracker, smart bracelet | 75
                + has heart rate monitoring, has step tracking, has a touch screen, is hands free
            watch bands | Wearables › Bands | watch band, watch strap, smartwatch band | 12
                + has a quick release pin, of stainless steel, of genuine leather, is sweat proof
            signal boosters | Phones › Accessories › Signal Boosters | signal booster, phone booster, signal repeater | 270
                + has a long range, has a 4g network, has dual band support
            """,
    ),
    family(
        "electronics",
        _ROOT,
        price=75,
        options="color:plain:4:!cards, size:memory:5:tablets/laptops/desktop/drives/cards, style:gear:0.42",
        attributes="is high performance, is plug and play, is energy efficient, is high quality, is light weight, easy use, easy carry, easy clean, "
        "is long lasting, for the home office, has a usb c port, is shock proof, easy install, is durable, is eco friendly",
        look="fast, silent, slim, compact, wireless, light, powerful, business, refurbished, rugged, foldable, precise",
        stuff="aluminum, abs plastic, tempered glass, vegan leather, magnesium, silicone, microfiber, rubber",
        part="keyboard, hinge, display, trackpad, fan, scroll wheel, tray, port, spring arm",
        extra="a usb receiver, a stylus, ink cartridges, a laptop sleeve, an adjustable stand, three ports, extra keycaps, a power adapter, "
        "a wrist rest",
        use="students, study rooms, gaming, video calls, drawing, travel, small teams, photo editing, online classes, spreadsheets",
        wares="""
            tablets | Computers › Tablets | tablet, kids tablet, drawing tablet | 220
                + has a quad core, has a touch screen, has a long battery life, is ultra slim
            tablet cases | Computers › Tablet Accessories › Cases | tablet case, keyboard case, tablet sleeve | 21
                + has a pencil holder, is water resistant, has an auto sleep cover
            laptops | Computers › Laptops | laptop, notebook computer, gaming laptop | 930
                + has a solid state drive, has a backlit keyboard, has a touch screen, has an anti glare screen, has a quad core
            desktop computers | Computers › Desktops | desktop computer, mini pc, gaming desktop | 810
                + has a solid state drive, has a quad core, is noise free, has dual monitor support
            keyboards | Computers › Accessories › Keyboards | keyboard, mechanical keyboard, number pad | 39
                + is hot swappable, is water resistant, is noise free, is ergonomic, is backlit
            computer mice | Computers › Accessories › Mice | computer mouse, gaming mouse, vertical mouse | 20
                + is ergonomic, is noise free, has adjustable speed, is rechargeable
            monitors | Computers › Monitors | monitor, computer monitor, portable monitor | 275
                + has an anti glare screen, has a wide viewing angle, is wall mountable, has a fast refresh rate
            printers | Computers › Printers & Scanners | printer, label printer, document scanner | 245
                + has wireless printing, has two sided printing, has automatic feed
            external drives | Computers › Storage › Drives | external drive, portable ssd, flash drive | 70
                + has high speed transfer, has usb 3.0, is ultra slim
            memory cards | Computers › Storage › Memory Cards | memory card, micro card, card reader | 20
                + has high speed transfer, has error correction, is water resistant
            routers | Computers › Networking › Routers | router, wifi extender, mesh router | 95
                + is dual band, has parental control, has a long range
            webcams | Computers › Accessories › Webcams | webcam, conference camera, streaming camera | 37
                + has a privacy cover, has a wide angle, has auto focus, has a built in microphone
            """,
    ),
    family(
        "electronics",
        _ROOT,
        price=13,
        options="size:feet:5:!batteries/adapters, color:plain:5:!batteries, size:packs:2, style:gear:0.33",
        attributes="is heavy duty, is flame retardant, is long lasting, is double insulated, easy use, easy install, is high quality, "
        "is plug and play, is light weight, easy carry, is high performance, is weather proof, is eco friendly, is durable",
        look="durable, flexible, thick, slim, reliable, long, compact, shielded, sturdy, replacement, universal, reinforced",
        stuff="copper, nylon, pvc, aluminum, rubber, zinc alloy, lithium, nickel",
        part="connector, plug, jacket, shielding, outlet, casing, contact, tip, cell",
        extra="a cable tie, six outlets, a hook strap, spare tips, an indicator light, wall mount holes, a dust cap, a storage box, a reset button",
        use="monitors, workshops, game consoles, desks, travel, toys, flashlights, routers, the garage, camping",
        wares="""
            hdmi cables | Accessories › Cables › HDMI | hdmi cable, hdmi adapter, hdmi cord
                + is gold plated, has 4k support, is male to female, is right angled, is high speed
            usb cables | Accessories › Cables › USB | usb cable, charging cable, data cable | 9
                + has fast charging, is nylon braided, is male to female, is high speed, is tangle free
            coaxial cables | Accessories › Cables › Coaxial | coaxial cable, rg6 cable, coax connector
                + is triple shielded, is gold plated, of pure copper
            ethernet cables | Accessories › Cables › Ethernet | ethernet cable, patch cable, network cable
                + of pure copper, is gold plated, has a snagless clip, is high speed
            audio cables | Accessories › Cables › Audio | audio cable, optical audio cable, speaker wire
                + is gold plated, of pure copper, is right angled, is tangle free
            surge protectors | Accessories › Power › Surge Protectors | surge protector, power strip, outlet extender | 22
                + has overload protection, has usb port(s), has a flat plug, has an on off switch
            batteries | Accessories › Power › Batteries | batteries, aa batteries, replacement battery | 14
                + is rechargeable, is leak proof, has a large capacity
            extension cords | Accessories › Power › Extension Cords | extension cord, power cable, outdoor cord | 18
                + has a flat plug, is male to female, has three outlet(s)
            power adapters | Accessories › Power › Adapters | power adapter, ac adapter, travel adapter
                + has a universal voltage range, has overload protection, for dc power, has a power cord
            """,
    ),
    family(
        "electronics",
        _ROOT,
        price=36,
        options="color:plain:6, style:gear:0.71",
        attributes="is plug and play, is non slip, easy carry, has fast charging, is high performance, is sweat proof, is adjustable, "
        "of soft silicone, has led lighting, is shock proof, easy use, is light weight, is high quality, has a carrying case, "
        "has a long battery life, easy install, easy clean, is long lasting",
        look="ergonomic, responsive, wireless, precise, comfortable, rugged, glowing, compact, retro, colorful",
        stuff="abs plastic, silicone, foam, eva, polyester, rubber, leatherette, alloy",
        part="thumb stick, trigger, ear pad, zipper, grip, shoulder button, face cover, dial",
        extra="a detachable microphone, game card slots, a carrying handle, thumb grips, a usb receiver, a charging cable, a wrist strap, "
        "spare foam pads",
        use="long sessions, kids, tournaments, travel, party games, racing games, beginners, fitness games, gifts",
        wares="""
            game controllers | Gaming › Controllers | game controller, wireless controller, arcade stick
                + has vibration feedback, has macro button(s), has a turbo mode, has motion control
            gaming headsets | Gaming › Headsets | gaming headset, gaming headphones, chat headset | 42
                + has a noise cancelling microphone, has surround sound
            console cases | Gaming › Bags & Cases | console case, game case, carry case | 19
                + has a hard shell, has mesh pocket(s), has a shoulder strap
            virtual reality headsets | Gaming › Virtual Reality | vr headset, vr goggles, face cover | 80
                + has motion control, has a face cushion
            video glasses | Gaming › Video Glasses | video glasses, smart glasses, display glasses | 220
                + has a blue light filter, is ultra hd, has built in speaker(s)
            """,
    ),
)
