"""The words of the generator: names, things, places and times. All lists are written for it."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


# People and animals.
GIRLS = words("""
    Lily Mia Anna Zoe Ella Rosa Nina Clara Ivy Maya Ruby Sara Tess Lucy Amy Grace Hana Leah Kate Nora Eva June Pia
    Dina
""")
BOYS = words("""
    Tom Ben Sam Max Jack Leo Finn Noah Omar Hugo Theo Eli Luke Ravi Dan Kai Adam Paul Ned Gus Joe Pete Ali Ian
""")
NAMES = GIRLS + BOYS
GROWN_UPS = words("mother father grandmother grandfather teacher aunt uncle")
TRAITS = words("kind brave clever gentle funny cheerful careful patient honest curious")
FEEL_BAD = words("sad worried upset lonely afraid")
FEEL_GOOD = words("happy glad proud cheerful thankful")
FRIEND_SPECIES = words("""
    cat dog frog duck mouse bird owl rabbit fox bear squirrel turtle hedgehog goat pony deer beaver crow
""")
FRIEND_NAMES = words("Pip Dot Bo Tilly Coco Moss Biscuit Fern Pebble Sunny Poppy Button Ziggy Acorn Bramble Noodle")
ANIMAL_SOUNDS = {
    "cat": "meow",
    "dog": "woof",
    "frog": "croak",
    "duck": "quack",
    "mouse": "squeak",
    "bird": "tweet",
    "owl": "hoot",
    "cow": "moo",
    "sheep": "baa",
    "pig": "oink",
    "lion": "roar",
    "bee": "buzz",
}

# Things.
COLORS = words("red blue green yellow orange purple pink white black brown silver golden")
TOYS = words("""
    ball kite boat drum doll train hat scarf bell lamp key book cup spoon ring shell button whistle bucket map coat
    shoe bag clock flute brush marble puzzle
""")
FOODS = words("cake apple pie bun pear cookie sandwich plum muffin pancake carrot melon biscuit peach")
THINGS = TOYS + FOODS

# Places, each with the spot where a lost toy is found there.
HIDING_SPOTS = {
    "the park": "under the bench",
    "the garden": "behind the roses",
    "the beach": "near a big rock",
    "the forest": "inside a hollow tree",
    "the kitchen": "under the table",
    "the barn": "in the hay",
    "the school": "beside the door",
    "the river": "on the sandy bank",
    "the hill": "next to the old wall",
    "the market": "behind a basket of apples",
    "the library": "between two books",
    "the attic": "in an old trunk",
    "the pond": "among the tall reeds",
    "the bridge": "below the wooden steps",
    "the playground": "at the foot of the slide",
    "the farm": "by the water pump",
}
PLACES = list(HIDING_SPOTS)
# Places that do not go with "in".
PREPOSITIONS = {
    "the hill": "on",
    "the beach": "on",
    "the bridge": "on",
    "the market": "at",
    "the river": "by",
    "the pond": "by",
    "the school": "at",
    "the playground": "on",
    "the farm": "on",
}

# Times, weather and the calendar.
TIMES = (
    "One morning",
    "One day",
    "One sunny afternoon",
    "One cold evening",
    "After breakfast",
    "On a windy day",
    "Early in the spring",
    "On a warm summer day",
    "Last winter",
    "One rainy day",
)
WEATHER = (
    "The sun was bright.",
    "The sky was clear and blue.",
    "A soft wind was blowing.",
    "White clouds moved slowly above.",
    "The air was fresh and cool.",
    "Birds were singing.",
    "The leaves were falling.",
    "There was dew on the grass.",
)
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July August September October November December")

# What plots are made of: (fear, why it is harmless), (project, its three parts, what comes after), (trouble, tool).
FEARS = (
    ("the dark", "the room was only dark, and the dark could not hurt anyone"),
    ("thunder", "it was only a loud noise, far away in the clouds"),
    ("deep water", "the water held them up when they lay still"),
    ("high places", "the view from the top was wonderful"),
    ("the big slide", "the slide was fast, but it was fun"),
    ("the old bridge", "the bridge was strong, and it did not even shake"),
    ("the tall ladder", "each step was just like the one before it"),
)
PROJECTS = (
    ("a tree house", ("wood", "rope", "nails"), "sat high up among the leaves"),
    ("a snowman", ("snow", "a carrot", "two buttons"), "gave it a warm scarf"),
    ("a raft", ("logs", "rope", "an old sheet"), "floated slowly down the river"),
    ("a kite", ("paper", "string", "two sticks"), "watched it fly above the roofs"),
    ("a sand castle", ("sand", "water", "white shells"), "put a flag on the tallest tower"),
    ("a bird house", ("wood", "glue", "green paint"), "waited for the first bird to move in"),
    ("a lantern", ("paper", "wire", "a candle"), "carried the light around the garden"),
    ("a scarecrow", ("straw", "an old coat", "a hat"), "waved at it every morning"),
)
TROUBLES = (
    ("stuck in a tall tree", "a ladder"),
    ("stuck in a deep hole", "a long rope"),
    ("caught in a net", "a pair of scissors"),
    ("stuck on a rock in the water", "a little boat"),
    ("trapped under a fallen branch", "a strong stick"),
    ("lost in the fog", "a bright lamp"),
)

OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "up": "down",
    "day": "night",
    "happy": "sad",
    "fast": "slow",
    "old": "new",
    "open": "closed",
    "wet": "dry",
    "light": "dark",
    "high": "low",
    "loud": "quiet",
    "hard": "soft",
    "full": "empty",
    "near": "far",
    "early": "late",
    "left": "right",
    "young": "old",
    "long": "short",
    "clean": "dirty",
}

# What the model shall say it does not know.
UNKNOWN_SUBJECTS = words("""
    dragon robot pirate king queen wizard mermaid monster spaceship dinosaur rocket computer princess knight witch
    ghost giant elf fairy unicorn whale shark tiger elephant penguin monkey snake spider doctor farmer baker pilot
    astronaut policeman soldier city ship car truck plane castle volcano desert island planet star moon
""")
COUNTRIES = words("""
    France Spain Italy Germany Japan China India Brazil Canada Egypt Kenya Norway Sweden Poland Greece Turkey Mexico
    Peru Chile Cuba Ireland Portugal Austria Hungary Finland Denmark Iceland Russia Ukraine Israel Iran Iraq
    Thailand Vietnam Korea Australia Argentina Morocco Nigeria Ghana
""")
TOPICS = words("""
    history music football chess physics chemistry biology geography politics money cars computers planets stars
    oceans dinosaurs volcanoes robots movies films books poems songs cooking fashion painting photography gardening
    travel medicine law religion philosophy economics weather sports basketball tennis swimming rockets satellites
    electricity magnets atoms cells genes viruses vitamins coffee tea chocolate cheese bread wine castles kings
    queens pirates wars inventions languages grammar Latin French Spanish German Chinese Japanese Python Java code
    programming databases networks phones cameras trains planes ships bicycles bridges towers mountains deserts
    jungles islands whales sharks elephants tigers penguins eagles snakes spiders
""")


def at(place: str) -> str:
    """The place with its preposition: "in the park", "on the hill"."""
    return f"{PREPOSITIONS.get(place, 'in')} {place}"
