"""What a household is made of: rooms, receptacles, objects, and what goes where.

Plain data, read by the generator (to build households) and by the expert (to know where to look first). The rules are
those of ALFRED as the official games show them: the same classes, the same abilities, the same containment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


def _table(text: str) -> dict[str, tuple[str, ...]]:
    """Read `Key: value value …` into a dictionary of tuples; a row may go on over several lines."""
    rows = re.findall(r"(\w+):([\w\s]*)(?=\s\w+:|$)", text)
    return {key: tuple(values.split()) for key, values in rows}


# Receptacle -> the classes of objects that may be put there.
CAN_CONTAIN = _table("""
    ArmChair: Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl
    BathtubBasin: Cloth DishSponge HandTowel SoapBar
    Bed: BaseballBat BasketBall Book CellPhone Laptop Pillow TennisRacket
    Cabinet: Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug Newspaper Pan
        PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Vase WateringCan
        WineBottle
    Cart: Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox ToiletPaper
    CoffeeMachine: Mug
    CoffeeTable: Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Plate RemoteControl
        Statue TissueBox Vase Watch WateringCan
    CounterTop: AlarmClock Apple Book Bowl Bread ButterKnife CD Candle CellPhone Cloth CreditCard Cup DishSponge Egg
        Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug Pan Pen Pencil PepperShaker Plate Pot
        Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle Statue TissueBox ToiletPaper Tomato
        Vase WineBottle
    Desk: AlarmClock BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop Mug Pen Pencil RemoteControl
        Statue TennisRacket TissueBox Vase Watch WateringCan
    DiningTable: AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth
        CreditCard Cup DishSponge Egg Fork Glassbottle Kettle KeyChain Knife Ladle Laptop Lettuce Mug Newspaper Pan Pen
        Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBottle Spatula Spoon SprayBottle Statue
        TennisRacket TissueBox Tomato Vase Watch WateringCan WineBottle
    Drawer: Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain Knife Ladle
        Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle
        TissueBox ToiletPaper Watch WateringCan
    Dresser: AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard KeyChain Laptop Mug Newspaper Pen
        Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox ToiletPaper Vase Watch WateringCan
    Fridge: Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle
    GarbageCan: Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato SoapBar SoapBottle
        SprayBottle TissueBox ToiletPaper Tomato WineBottle
    HandTowelHolder: HandTowel
    LaundryHamper: Cloth
    Microwave: Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato
    Ottoman: Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl
    Safe: CD CellPhone CreditCard KeyChain Statue Vase
    Shelf: AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle HandTowel Kettle
        KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot RemoteControl SaltShaker SoapBar SoapBottle SprayBottle
        Statue TissueBox ToiletPaper Vase Watch WateringCan WineBottle
    SideTable: AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth
        CreditCard Cup DishSponge Egg Fork HandTowel Kettle KeyChain Knife Laptop Lettuce Mug Newspaper Pan Pen Pencil
        PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle Statue
        TennisRacket TissueBox ToiletPaper Tomato Vase Watch WateringCan WineBottle
    SinkBasin: Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife Ladle Lettuce Mug
        Pan Plate Pot Potato SoapBar Spatula Spoon Tomato
    Sofa: Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl
    StoveBurner: Kettle Pan Pot
    TVStand: TissueBox
    Toaster:
    Toilet: Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper
    ToiletPaperHanger: ToiletPaper
    TowelHolder: Towel
""")

# Object -> the receptacles where it is found, the likeliest first.
HOMES = _table("""
    AlarmClock: Desk SideTable Shelf Dresser DiningTable
    Apple: Fridge CounterTop DiningTable GarbageCan Microwave SinkBasin SideTable
    BaseballBat: Bed DiningTable SideTable
    BasketBall: Bed Desk Dresser
    Book: Bed Desk Drawer CounterTop Dresser DiningTable SideTable CoffeeTable Shelf Sofa
    Bowl: Cabinet CounterTop Fridge DiningTable Shelf Desk SinkBasin Microwave CoffeeTable Dresser
    Box: Sofa DiningTable CoffeeTable Desk SideTable Shelf Cabinet ArmChair
    Bread: CounterTop DiningTable Fridge GarbageCan SideTable
    ButterKnife: CounterTop DiningTable Drawer SinkBasin SideTable
    CD: Drawer Desk Dresser SideTable Shelf GarbageCan DiningTable Safe
    Candle: CounterTop Toilet Cabinet Drawer Shelf SideTable CoffeeTable Cart
    CellPhone: Bed Drawer Desk Dresser CounterTop SideTable DiningTable Shelf CoffeeTable
    Cloth: BathtubBasin Cabinet CounterTop Drawer SinkBasin Shelf Toilet LaundryHamper
    CreditCard: Drawer Shelf SideTable Dresser Desk ArmChair CoffeeTable Sofa CounterTop Safe
    Cup: Cabinet CounterTop Fridge DiningTable SinkBasin Microwave SideTable Shelf
    DeskLamp: SideTable Desk Dresser Shelf
    DishSponge: CounterTop Cabinet Drawer DiningTable SinkBasin GarbageCan Shelf BathtubBasin
    Egg: Fridge CounterTop SinkBasin GarbageCan Microwave DiningTable SideTable
    Fork: CounterTop DiningTable Drawer SinkBasin SideTable
    Glassbottle: CounterTop Cabinet SinkBasin Fridge DiningTable Shelf
    HandTowel: HandTowelHolder CounterTop
    Kettle: StoveBurner Cabinet CounterTop DiningTable SinkBasin Shelf
    KeyChain: Drawer SideTable Dresser Desk Shelf CoffeeTable ArmChair DiningTable Safe
    Knife: CounterTop DiningTable Drawer SinkBasin SideTable
    Ladle: CounterTop Cabinet Drawer DiningTable SinkBasin
    Laptop: Bed Desk Sofa DiningTable CoffeeTable Dresser SideTable ArmChair
    Lettuce: CounterTop DiningTable Fridge SinkBasin SideTable GarbageCan
    Mug: CounterTop CoffeeMachine Cabinet Fridge DiningTable Microwave Desk SinkBasin Dresser Shelf SideTable
    Newspaper: CoffeeTable DiningTable Sofa Shelf SideTable ArmChair Dresser Drawer
    Pan: StoveBurner CounterTop Cabinet Fridge DiningTable
    Pen: Desk Drawer Dresser SideTable Shelf DiningTable CounterTop CoffeeTable
    Pencil: Drawer Desk SideTable Shelf Dresser DiningTable GarbageCan CounterTop
    PepperShaker: Cabinet CounterTop DiningTable Drawer Shelf SideTable
    Pillow: Bed Sofa ArmChair
    Plate: Cabinet CounterTop DiningTable Fridge Shelf CoffeeTable SinkBasin SideTable
    Plunger: Cabinet
    Pot: StoveBurner CounterTop DiningTable Cabinet Fridge Shelf SinkBasin
    Potato: CounterTop Fridge DiningTable SinkBasin Microwave GarbageCan SideTable
    RemoteControl: CoffeeTable Sofa SideTable ArmChair Dresser DiningTable Drawer Shelf
    SaltShaker: CounterTop Cabinet DiningTable Drawer Shelf SideTable
    SoapBar: CounterTop Toilet SinkBasin BathtubBasin Cabinet Drawer GarbageCan Shelf
    SoapBottle: CounterTop Cabinet DiningTable GarbageCan Toilet Shelf Drawer SideTable
    Spatula: CounterTop DiningTable Drawer SinkBasin SideTable
    Spoon: CounterTop Drawer DiningTable SinkBasin SideTable
    SprayBottle: CounterTop Toilet Cabinet GarbageCan Shelf SideTable Cart DiningTable
    Statue: Shelf CoffeeTable CounterTop DiningTable SideTable Dresser Desk
    TennisRacket: Bed Desk Dresser
    TissueBox: CoffeeTable Shelf Drawer CounterTop SideTable DiningTable Desk TVStand
    ToiletPaper: CounterTop Toilet Cabinet Drawer ToiletPaperHanger GarbageCan Shelf SideTable
    Tomato: Fridge CounterTop DiningTable GarbageCan SinkBasin SideTable
    Towel: TowelHolder
    Vase: Shelf CounterTop Cabinet CoffeeTable DiningTable Dresser SideTable Desk
    Watch: Drawer CoffeeTable SideTable DiningTable Dresser Shelf Desk
    WateringCan: CoffeeTable Shelf SideTable
    WineBottle: CounterTop DiningTable Cabinet GarbageCan Shelf Fridge
""")

ABILITIES = _table("""
    heatable: Apple Bread Cup Egg Mug Plate Potato Tomato
    coolable: Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle
    cleanable: Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate Pot Potato
        SoapBar Spatula Spoon Tomato
    sliceable: Apple Bread Egg Lettuce Potato Tomato
    isReceptacleObject: Bowl Box Cup Mug Pan Plate Pot
    toggleable: DeskLamp
""")

LAMP = "DeskLamp"
OBJECTS = tuple(HOMES)
RECEPTACLES = tuple(CAN_CONTAIN)
OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
ALWAYS_OPENABLE = frozenset({"Fridge", "Microwave"})  # the others have a few fixed fronts, as in the official rooms
HOLDS_ONE = frozenset({"CoffeeMachine", "HandTowelHolder", "StoveBurner", "ToiletPaperHanger", "TowelHolder"})


@dataclass(frozen=True)
class Room:
    """A kind of room: its first scene number, receptacles always there, the most of each, and its objects."""

    scene: int
    always: tuple[str, ...]
    most: dict[str, int]
    objects: tuple[str, ...]


def _room(scene: int, always: str, most: str, objects: str) -> Room:
    limits = {name: int(count) for name, count in (pair.split("=") for pair in most.split())}
    return Room(scene, tuple(always.split()), limits, tuple(objects.split()))


ROOMS = {
    "kitchen": _room(
        1,
        "Fridge Microwave SinkBasin",
        "Cabinet=20 Drawer=10 StoveBurner=4 CounterTop=3 SinkBasin=1 Microwave=1 Fridge=1 GarbageCan=1 CoffeeMachine=1 "
        "Toaster=1 DiningTable=1 Shelf=3 SideTable=1",
        "Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Glassbottle Kettle Knife Ladle Lettuce Mug Pan "
        "PepperShaker Plate Pot Potato SaltShaker SoapBottle Spatula Spoon Statue Tomato Vase WineBottle",
    ),
    "living room": _room(
        201,
        "Sofa",
        "Sofa=2 ArmChair=2 CoffeeTable=2 SideTable=3 Shelf=8 Drawer=12 Cabinet=6 DiningTable=1 Dresser=1 TVStand=1 "
        "GarbageCan=1 Ottoman=1 Desk=1 Safe=1",
        "Book Bowl Box Candle CellPhone CreditCard DeskLamp KeyChain Laptop Newspaper Pen Pencil Pillow Plate "
        "RemoteControl Statue TissueBox Vase Watch WateringCan",
    ),
    "bedroom": _room(
        301,
        "Bed",
        "Bed=2 Desk=2 Drawer=14 Dresser=1 Shelf=8 SideTable=2 Cabinet=4 GarbageCan=1 ArmChair=1 LaundryHamper=1 Safe=1 DiningTable=1",
        "AlarmClock BaseballBat BasketBall Book Bowl Box CD CellPhone CreditCard DeskLamp KeyChain Laptop Mug Pen "
        "Pencil Pillow RemoteControl Statue TennisRacket TissueBox Vase Watch",
    ),
    "bathroom": _room(
        401,
        "Toilet SinkBasin",
        "Toilet=1 SinkBasin=2 CounterTop=2 Cabinet=8 Drawer=8 Shelf=4 GarbageCan=1 BathtubBasin=1 HandTowelHolder=2 "
        "TowelHolder=2 ToiletPaperHanger=1 Cart=1 SideTable=1 Dresser=1",
        "Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Towel",
    ),
}


@dataclass(frozen=True)
class Size:
    """How large a household is: receptacles and objects (at least, at most), and which classes occur."""

    receptacles: tuple[int, int]
    objects: tuple[int, int]
    most_of_a_kind: int  # receptacles of one class
    crowd: int  # objects in one receptacle at the start
    fixed_fronts: float  # share of drawers, cabinets, safes that are no longer openable
    shared_places: float  # share of receptacles that stand where another one stands
    vocabulary: frozenset[str] | None = None  # None: every class


# A model of 0.3 M parameters learns its words from scratch in minutes: few classes, each of them seen often.
MINI = _table("""
    objects: Apple Book Bowl Bread CD Candle CellPhone Cloth CreditCard Cup DeskLamp Egg Fork KeyChain Knife Lettuce Mug
        Pen Pillow Plate Potato SoapBar SoapBottle Spoon ToiletPaper Tomato Watch
    receptacles: Bed Cabinet CoffeeTable CounterTop Desk DiningTable Drawer Dresser Fridge GarbageCan Microwave Shelf
        SideTable SinkBasin Sofa Toilet
""")

SIZES = {
    "mini": Size((5, 8), (6, 12), 2, 3, 0.0, 0.0, frozenset(MINI["objects"] + MINI["receptacles"])),
    "small": Size((9, 14), (10, 18), 4, 4, 0.0, 0.05),
    "medium": Size((15, 24), (16, 30), 8, 5, 0.15, 0.1),
    "full": Size((20, 42), (20, 50), 20, 8, 0.15, 0.1),
}
