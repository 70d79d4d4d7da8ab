"""Sentences of the generated catalogue's descriptions and bullets.

Slots: {noun} a name of the ware, in any number ("tee", "jeans", "tea": no sentence depends on it); {brand}; {tail} what an attribute says of it; and
words of the family's pools: {look} an adjective, {stuff} a material or an ingredient, {part} (after "the"), {extra} (after "with"), {use} (after
"for"). {look} and so on: another one of the same pool. {a look}: with its article.
"""

from __future__ import annotations

from .words import listed

# What is said of an attribute, by its form.
ATTRIBUTE = {
    "is": (
        "{tail}, and meant to stay so for as long as you use it.",
        "Being {tail}, it saves you time and trouble, whether you want it for {use} or for {use}.",
        "You told us that it has to be {tail}, so that is where the work on the {noun} began.",
        "{tail} and {look}: a good pick for {use}.",
        "Our {noun} can be called {tail} with a clear conscience: every batch is tried out before it ships.",
        "Why choose {brand}? Because it is {tail}, {look} and fairly priced.",
        "The result is {tail}, as you would expect of {brand}.",
    ),
    "has": (
        "It comes with {tail}, which you will notice at once when you use it for {use}.",
        "With {tail} and {extra}, the {noun} will serve you well for {use}.",
        "Designed with {tail}, because small things make the difference.",
        "{brand} gave it {tail}: simple, {look}, and just right for {use}.",
        "Look for {tail}: this is how you know the {brand} original.",
        "Few things are as welcome for {use} as {tail}.",
    ),
    "of": (
        "Made of {tail}, chosen with care and checked twice before it leaves us.",
        "We use {tail} for the {noun}, since nothing else gives the same {look} result.",
        "The secret is {tail}: {look}, honest, and good for {use}.",
        "Real {tail} is what sets the {brand} {noun} apart from cheaper ones.",
        "{tail} where it matters most, and {stuff} for the rest.",
    ),
    "for": (
        "Made for {tail}, and welcome for {use} too.",
        "If you look for something for {tail}, the {look} {noun} from {brand} will not let you down.",
        "A favorite of our customers for {tail}: {look}, practical, and easy on the purse.",
        "Whether for {tail} or for {use}, you will reach for it again and again.",
        "Tested for {tail} by people who know what they want.",
    ),
    "noun": (
        "Also sold as {tail}: whatever you call it, it is made for {use}.",
        "Looking for {tail}? Then the {look} one from {brand} is for you.",
        "{a look} choice if {tail} is what you have in mind.",
    ),
}

# Sentences that fit any product.
GENERAL = (
    "If anything is not as you expected, write to {brand} and we will make it right within two days.",
    "Every order is packed by hand in a recycled box and leaves our store on the next working day.",
    "{brand} is a small company with its own workshop, and we answer every question in person.",
    "Thousands of customers have chosen the {noun} for {use}, and many of them came back for a second one.",
    "Think of it as a present for somebody who has everything: {look}, useful, and nicely wrapped.",
    "What you get: the {noun} with {extra}, a short guide, and our thanks.",
    "No fuss, no tricks: just {a look} and well made product at a fair price.",
)

BODY = {
    "fashion": (
        "We changed the {part} after your letters, and we think that you will like the new one even more.",
        "Cut from {look} {stuff} that moves with you and keeps its shape from morning till night.",
        "The {part} and the {part} were finished twice, so that nothing pulls, scratches or comes loose.",
        "Wear it for {use} today and for {use} tomorrow: the {look} design goes with nearly everything.",
        "A quiet mix of {stuff} and {stuff} feels {look} on the skin and dries overnight.",
        "Details such as {extra} give the {look} {noun} a character of its own.",
        "Order your usual size; if you are between two sizes, take the larger one for a relaxed look.",
        "The {brand} {noun} began as a sketch for {use} and became the best seller of our store.",
        "Goes well with jeans, with shorts, or with something {look} from the back of your closet.",
        "Turn it inside out and you will see how carefully the {part} was sewn.",
        "Not too tight and not too wide: {look} where you want it, {look} where you need it.",
        "With {extra} and {a look} {part}, you are ready for {use}.",
        "We picked {stuff} for the {part}, where most of the wear happens, and {stuff} for everything else.",
        "{a look} piece that you can dress up for {use} or down for {use}.",
        "Our models wear medium; the chart shows chest, waist and length in inches.",
        "You can throw it into a suitcase and shake it out on arrival: the {stuff} forgives a lot.",
        "The color is in the yarn, not on it, and the first hundred washes will not change that.",
        "Some like it for {use}, some for {use}, and our seamstress wears hers at home with a cup of tea.",
        "The pattern was drawn by two sisters who had looked for something {look} for years and never found it.",
        "Compare the {part} with that of other makers and you will understand the price.",
        "For {use} you want something {look}, and {stuff} is hard to beat at that.",
        "Colors can look a little different from one screen to another; the swatch in the last picture is the truest.",
        "Fold it, roll it or hang it up: {stuff} and {stuff} do not mind.",
        "Friends will ask about the {part}; tell them that it comes with {extra} as well.",
    ),
    "beauty": (
        "{a look} formula with {stuff} and {stuff}, made in small batches and sealed on the same day.",
        "Extra care went into everything that has to do with the {part}.",
        "Use it once a day for two weeks and see what changes around the {part}.",
        "With {extra}, so that you can take it along and use it wherever you are.",
        "Good for {use} as well as for {use}, at any age and in any season.",
        "{stuff} is known to many grandmothers; we have put it into the {look} {noun} of {brand}.",
        "A little goes a long way: start with less than you think and add more if you need it.",
        "{brand} stands for {look} care without long lists of words that nobody can pronounce.",
        "First comes the {part}, then the {part}: the little leaflet shows every step in pictures.",
        "It feels {look} from the first day and never heavy, sticky or harsh.",
        "We worked with {stuff} for three years until the result was as {look} as we wanted it.",
        "Put it beside the sink, into your bag or on the shelf: the {look} design looks good anywhere.",
        "Store it in a cool and dry place and close it well after use.",
        "Made for people who want {a look} result for {use} but have only five minutes.",
        "Try it on a small spot first if you have never used {stuff} before.",
        "A thoughtful gift with {extra}, ready to be wrapped.",
        "Nothing is better for the {part} than a little patience and {a look} product that you enjoy using.",
        "Shake it, open it, and let the {look} side of {stuff} do its work while you brush your teeth.",
        "For {use} or simply for yourself: five quiet minutes a day are enough.",
        "Our testers, aged 19 to 74, tried it on the {part} first and then asked for {extra}, which we have added.",
        "What you do not use today will be just as good in a year, provided that the lid is closed.",
        "{stuff} or {stuff}? We could not decide, and so there is a little of both in it.",
        "Order two and leave one where you travel most; it is small enough for any drawer.",
        "Begin with the {part} and work outwards in small circles, without haste.",
    ),
    "electronics": (
        "We changed the {part} after your letters, and we think that you will like the new one even more.",
        "The {part} sits in a frame of {stuff}, so that it takes a knock without complaint.",
        "Unpack it, connect it, and you are done: the {look} {noun} needs no manual, though there is one.",
        "Engineers at {brand} spent a year on the {part} alone, and you can tell.",
        "In the box you will find the {noun}, {extra}, and a printed guide in five languages.",
        "Made for {use} but just as useful for {use}.",
        "{a look} body of {stuff} and {stuff} keeps the weight down and the heat away.",
        "Works with most devices of the last ten years; please check the list of models before you order.",
        "With {extra}, you will not have to buy anything else.",
        "The {look} design leaves room on the desk and looks good in any room.",
        "Each {part} is measured at the factory and again in our own test room.",
        "Should the {part} ever fail, we will replace it within two years, no questions asked.",
        "When you use it for {use}, you will be glad of {extra}.",
        "{stuff} around the {part} and {stuff} inside: built to be used every day.",
        "Press the button for three seconds, wait for the blue light, and the {look} {noun} will do the rest.",
        "Keep the vents free, wipe it with a dry cloth, and it will run for many years.",
        "Ask ten people what they want for {use}, and nine of them will say: something {look}.",
        "We left out everything that blinks without need and kept what counts: the {part}, the {part}, and your time.",
        "Children find out how it works in a minute; grown ups may want to look at page two of the guide.",
        "Take it apart if you like: the {part} is held by four ordinary screws and can be replaced.",
        "Small enough for {use}, {look} enough for {use}.",
        "Our support speaks plain English, has the {noun} on its own desk, and picks up the phone.",
        "If you move house, it moves with you: {extra} and all the rest go back into the same box.",
        "Compared with last year's model, the {part} is quieter and the {part} lasts about a third longer.",
        "The finish of {stuff} does not show fingers, dust or the marks of daily use.",
    ),
    "garden": (
        "{a look} piece of {stuff} and {stuff} that brings calm into busy rooms.",
        "Put it where you like: it looks as good in the hallway as it does next to the window.",
        "We changed the {part} after your letters, and we think that you will like the new one even more.",
        "The {part} was sanded and finished by hand, so that no two are quite the same.",
        "All tools, screws and a picture guide are in the box; two people need about half an hour.",
        "Thanks to {extra}, there is a place for everything and nothing gets lost.",
        "Made for {use}, yet {look} enough for {use}.",
        "{brand} has worked with {stuff} for years and knows what it can bear.",
        "The {look} lines go well with old and new furniture alike.",
        "Wipe the {part} with a damp cloth now and then: that is all the care it asks for.",
        "With {extra} and {a look} {part}, it makes the most of every corner.",
        "We pack the {part} and the {part} in foam, so that they arrive as they left us.",
        "The tone of the {stuff} can differ a little from picture to picture, as nature wants it.",
        "If you furnish rooms for {use}, begin with {a look} piece like this one.",
        "{stuff} gives it weight, {stuff} gives it warmth, and the {look} shape does the rest.",
        "A present that new neighbors, students and parents will use every single day.",
        "Measure the space first: the drawing in the pictures shows every side of the {noun} in inches.",
        "Live with it for a week, and you will wonder how you managed {use} without it.",
        "The {look} {part} catches the evening sun, and the {look} {part} keeps out of the way.",
        "Every {brand} piece bears the initials of the person who made it, under the {part}.",
        "Made to be moved, cleaned, lent to friends and handed down.",
        "Choose {stuff} if you like things {look}; it grows more handsome from year to year.",
        "Our photographer could not stop arranging it for {use}: you will find eleven ideas in the pictures.",
        "If a screw gets lost, we will send you a new one, even after ten years.",
        "Nothing wobbles, nothing creaks, and the {part} stays where you put it.",
    ),
    "grocery": (
        "{a look} recipe with {stuff} and {stuff}, made in a small kitchen and not in a laboratory.",
        "We changed the {part} after your letters, and we think that you will like the new one even more.",
        "The {part} comes first, then the {part}, and then you will want another one.",
        "Open it for {use}, share it, and keep the rest for {use}.",
        "We buy our {stuff} from growers whom we know by name.",
        "Packed with {extra}, so that it stays {look} to the last bite.",
        "Nothing to hide: {stuff}, {stuff}, and a pinch of patience.",
        "Our grandmother made the {noun} for {use}; we only made the pot larger.",
        "Serve it cold or at room temperature, alone or with something {look}.",
        "The {look} {part} is what people remember, and what they write to us about.",
        "Keep it in a cool and dry cupboard, and close it well after opening.",
        "{brand} cooks every batch by taste: if it is not {look}, it does not leave the house.",
        "Great for {use}: put some on a plate and watch how fast it goes.",
        "A hint of {stuff} makes it {look}, and a touch of {stuff} makes it hard to forget.",
        "Comes with {extra}, which makes it a welcome little present, too.",
        "You can also stir it into your own recipes: our web page has forty of them.",
        "Best before the date on the lid, although we have never seen it last that long.",
        "Children like the {part}, parents like the short list of what is in it: {stuff}, {stuff}, and little else.",
        "Take a spoonful of {stuff} away and it would be only half as {look}.",
        "One pack is enough for {use}; for {use} you had better order two.",
        "We tried it with {stuff}, we tried it with {stuff}, and in the end we took both.",
        "Not too {look} and not too {look}: just as it was served at the fair when we were small.",
        "If you have guests, put the box away first: the {part} disappears before the coffee is ready.",
        "{brand} still works with the copper kettle in which it all began, and with the same {stuff}.",
        "Goes with bread, with fruit, with a good book, and above all with company.",
    ),
}

HEADS = {
    "fashion": listed(
        "Everyday Favorite, Made to Last, Small Details, Wear It Your Way, Made for Comfort, A Good Present, Fabric, Fit and Size, "
        "Care, For Any Season, Our Promise"
    ),
    "beauty": listed(
        "Gentle Care, What Is Inside, How to Use, Made With Love, Your Daily Ritual, A Good Present, Take It Along, "
        "Visible Results, Our Promise, Safe Choice"
    ),
    "electronics": listed(
        "What You Get, Built to Last, Simple Setup, Smart Design, Works With Everything, Take It Along, Peace of Mind, Great Gift, "
        "Made Better, Our Promise"
    ),
    "garden": listed(
        "Thoughtful Design, Solid Build, In the Box, Makes Room, Fits Any Style, A Good Present, Materials, Care, Size, Our Promise, For Every Room"
    ),
    "grocery": listed(
        "The Taste, What Is Inside, From Our Kitchen, Serve It, A Good Present, Keep It Fresh, Made With Care, Share It, "
        "Our Promise, Where It Comes From"
    ),
}

# Bullets of a few words, as sellers write them.
SHORT = {
    "fashion": ("imported", "{stuff} and {stuff}", "{look} {stuff}", "with {extra}", "good for {use}", "{look} and {look}", "designed by {brand}"),
    "beauty": ("with {stuff}", "{look} and {look}", "comes with {extra}", "{stuff} and {stuff}", "for {use}", "by {brand}"),
    "electronics": ("includes {extra}", "{look} and {look}", "made of {stuff}", "for {use}", "two year warranty", "by {brand}"),
    "garden": ("{stuff} and {stuff}", "with {extra}", "{look} design", "for {use}", "tools included", "by {brand}"),
    "grocery": ("with {stuff}", "{look} and {look}", "packed with {extra}", "{stuff} and {stuff}", "for {use}", "by {brand}"),
}

# What follows the name of the ware in a title, piece by piece.
TITLE = {
    "fashion": (
        "{look} {noun2}",
        "{stuff} {noun2} with {extra}",
        "for {use}",
        "{look} {stuff}",
        "{look} and {look}",
        "with {extra}",
        "{noun2} for {use}",
        "{stuff} {noun2}",
    ),
    "beauty": (
        "with {stuff}",
        "{look} {noun2} with {stuff}",
        "for {use}",
        "with {stuff} and {stuff}",
        "{look} and {look}",
        "{noun2} for {use}",
        "with {extra}",
        "{look} Care for {use}",
    ),
    "electronics": (
        "with {extra}",
        "{look} {noun2}",
        "for {use}",
        "{look} {stuff} {part}",
        "{noun2} with {extra}",
        "{noun2} for {use}",
        "for {use} and {use}",
        "{look} and {look}",
    ),
    "garden": (
        "{look} {stuff} {noun2}",
        "with {extra}",
        "for {use}",
        "{noun2} with {extra}",
        "{look} {noun2} for {use}",
        "{stuff} and {stuff}",
        "for {use} and {use}",
        "{look} and {look}",
    ),
    "grocery": (
        "with {stuff}",
        "{look} and {look}",
        "for {use}",
        "{look} {noun2}",
        "{stuff} and {stuff}",
        "{noun2} with {stuff}",
        "with {extra}",
        "Great for {use}",
    ),
}
