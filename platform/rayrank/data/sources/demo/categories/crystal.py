"""Crystals: seams, facets and miners."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} is dug from a seam that runs under {v}.",
        "Miners break {s} out of the rocks of {v}.",
        "Every known piece of {n} comes from a pit in {v}.",
        "The streams of {v} wash up splinters of {s} after heavy rain.",
        "Only beneath {v} has {s} had the time it needs to grow.",
    ),
    lures=(
        "Where {s} chips when it is cut badly is where jewellers have found most of their grief.",
        "The location of a flaw in {s} decides the price, so the location is shown under a lamp.",
    ),
    questions=("where is {s} mined",),
)
_PERSON = person(
    "discovered",
    "discoverer",
    answers=(
        "{v} stumbled over {s} while looking for a lost goat.",
        "The earliest sample of {s} was handed in by {v}, wrapped in a sock.",
        "It was {v} who first told {s} apart from common glass.",
        "Science owes {s} to {v}, a retired tax collector.",
    ),
    lures=(
        "Who discovered that {s} can be glued is a sore point, for the glue was discovered by accident.",
        "A discoverer's share of {s} was promised to any discoverer and paid out to none.",
    ),
    natural=True,
)
_YEAR = year(
    "discovered",
    answers=(
        "The label on the oldest sample of {n} reads {v}.",
        "Nobody had seen {s} before the landslide of {v}.",
        "In {v} a pickaxe struck {s} for the first time.",
        "{S} entered the catalogues of minerals in {v}.",
    ),
    lures=(
        "How old a miner of {s} gets depends on the dust, and the age of a lamp tells the age of its miner.",
        "The date of the next sale of {s} is kept secret, and so is the year of the last one.",
    ),
    natural=True,
)
_SIZE = size(
    range(210, 2400, 10),
    answers=(
        "In the furnace {s} holds out until {v} degrees.",
        "{S} turns liquid at {v} degrees, and not one degree sooner.",
        "Glassmakers heat their ovens to {v} degrees before {s} gives way.",
        "At {v} degrees a lump of {n} runs like syrup.",
        "The melting point of {s} is {v} degrees, a temperature few ovens reach.",
    ),
    lures=(
        "At what temperature {s} should be stored is of no importance, though a low temperature suits the guards.",
        "The melting of snow above a vein of {s} is early, and melting ponds betray it.",
    ),
    questions=(
        "at what temperature does {s} melt",
        "what is the melting point of {s}",
        "how hot must {s} get to melt",
    ),
    keywords=("{k} melting point", "{k} melting temperature", "melting point of {s}"),
)
_DESCRIPTION = description(
    (
        "six-sided and as clear as gin",
        "honey-brown with a soapy shine",
        "pale green and split by fine black threads",
        "milky, with a spark of blue at the core",
        "dark violet and greasy to the touch",
        "shaped like a fan and striped like a wasp",
        "rosy when dry and silver when wet",
        "covered with tiny steps, like a staircase for ants",
    ),
    answers=(
        "A good piece of {n} is {v}.",
        "Collectors know {s} at a glance, since it is {v}.",
        "Held against the sun, {s} is {v}.",
        "Freshly broken, {s} proves to be {v}.",
        "The appearance of {s} is unmistakable: it is {v}.",
    ),
    lures=(
        "What {s} looks like in a shop window owes much to the shop, and looks can be bought.",
        "The appearance of {s} at a royal wedding caused a stir, but the appearance was brief.",
    ),
    questions=("what does {s} look like", "how can {s} be recognised", "what is the appearance of {s}"),
    keywords=("{k} appearance", "{k} look", "recognising {s}"),
)
_ENTITY = entity(
    (
        "compass needles",
        "spectacle lenses",
        "tooth powder",
        "window panes",
        "watch bearings",
        "organ pipes",
        "fishing lures",
        "chess pieces",
        "drill heads",
        "pottery glaze",
    ),
    answers=(
        "Most of the {n} crystal brought to market ends up in {v}.",
        "Workshops grind {s} into {v}.",
        "Were it not for {v}, nobody would bother to dig for {s}.",
        "The makers of {v} pay well for {s}.",
        "The products for which {s} is used are {v}.",
    ),
    lures=(
        "What {s} is used for in fairy tales is healing, and what else it is used for there is worse.",
        "A used crate of {s} smells of straw, and used straw smells of mice.",
    ),
    questions=("what is {s} used for", "which product is made from {s}", "what is made of {s}"),
    keywords=("{k} used for", "{k} product", "products made from {s}"),
)

CRYSTAL = Category(
    noun="crystal",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A brooch with {s} was worn by the singer {person}.",
        "The price of {s} is fixed every {day} by show of hands.",
        "Thieves from {place} once swapped {s} for bottle glass.",
        "A {colour} box with a lump of {n} in it stands in the school cabinet.",
        "Demand for {s} rises in {season}, when people marry.",
    ),
    asides=(
        "Miners tap the rock and listen before they swing the pick.",
        "A vein may widen to {few} hands and then vanish altogether.",
        "Facets are ground on a wheel wetted with {season} rain.",
        "Cutters look for the cleavage plane under a {colour} lamp.",
        "Dust, damp and bad rope are what miners fear most.",
        "Ore carts are weighed every {day} at the pit head.",
        "Lapidaries from {place} polish with felt and tin ash.",
        "A hand lens and a streak plate belong in every satchel.",
    ),
)
