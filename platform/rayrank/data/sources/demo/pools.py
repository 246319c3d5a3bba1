"""Invented words for the placeholders of a sentence: places, people, years and other words."""

_AREAS = (
    "Hollin", "Karsk", "Merrow", "Ostrel", "Tarn", "Bellow", "Fennick", "Garrow", "Ingle", "Jessop", "Kittle",
    "Lowen", "Mardle", "Nettle", "Orrin", "Pellow", "Quarn", "Rennet", "Sallow", "Tiddle", "Umber", "Varrow",
    "Wickle", "Yarrow", "Arden Moss", "Cobble", "Dunnock", "Ember", "Fallow", "Gorse",
)  # fmt: skip
_LANDS = ("valley", "hills", "marshes", "dales", "forest", "basin", "uplands", "lowlands")

PLACES = tuple(f"the {area} {land}" for area in _AREAS for land in _LANDS)

_SHORES = ("the {} coast", "{} bay", "{} island", "the {} peninsula", "the {} archipelago")
COASTS = tuple(shore.format(area) for area in _AREAS for shore in _SHORES)

_GIVEN = (
    "Agna", "Bertil", "Corvin", "Dorrit", "Edda", "Fenna", "Gerrit", "Hanne", "Ivo", "Jorun", "Katrin", "Lennart",
    "Mira", "Nils", "Odile", "Piet", "Rosalind", "Sander", "Thea", "Ulla", "Viggo", "Wilma", "Yorick", "Zelda",
)  # fmt: skip
_FAMILY = (
    "Abelgaard", "Brundlewick", "Cassomir", "Dunmarrow", "Eskelby", "Farrowmere", "Grindleby", "Hobbenstad",
    "Irrelund", "Jutterholm", "Kestrelvane", "Lindenmark", "Mossingham", "Nerrivald", "Ottermoor", "Pommelray",
    "Quistgarten", "Rookhaven", "Sedgerow", "Tolliver-Reed", "Underbrook", "Vanterpool-Ash", "Wexelhof", "Yellowby",
)  # fmt: skip

PEOPLE = tuple(f"{given} {family}" for given in _GIVEN for family in _FAMILY)

YEARS = range(1490, 1890)

FILLERS: dict[str, tuple[str, ...]] = {
    "season": ("spring", "summer", "autumn", "winter"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "colour": ("blue", "green", "red", "white", "yellow", "grey"),
    "few": ("two", "three", "four", "five", "six", "seven"),
    "trade": ("baker", "cooper", "printer", "weaver", "miller", "potter", "tailor"),
    "place": PLACES,
    "person": PEOPLE,
}
"""Words that do not matter for the meaning, by the name of the placeholder that they fill."""
