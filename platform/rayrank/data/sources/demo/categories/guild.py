"""Guilds: masters, oaths and apprentices."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} meets in a timbered hall in {v}.",
        "The workshops of {n} line a single street near {v}.",
        "Apprentices walk to {v} to knock at the door of {s}.",
        "{S} has its seat in {v} and owns the well there.",
        "Banners in the churches of {v} recall that {s} belongs here.",
    ),
    lures=(
        "Where members of {s} stand in a procession is decided by lot, and where they sit by age.",
        "The location of the cellar key of {s} is sworn to silence, and its location changes yearly.",
    ),
    questions=("where is the seat of {s}",),
)
_PERSON = person(
    "founded",
    "founder",
    answers=(
        "{v} gathered the scattered masters and wrote the oath of {s}.",
        "The charter of {s} was won from the duke by {v}.",
        "Without the stubborn {v} there would be no {n} guild.",
        "It was {v} who opened the common purse of {s}.",
    ),
    lures=(
        "Who founded a rival to {s} was struck from the rolls, and what was founded did not last.",
        "A founder of bells is no founder of guilds, runs an old saying in {s}.",
    ),
)
_YEAR = year(
    "founded",
    answers=(
        "The oath of {s} was sworn for the first time in {v}.",
        "{S} received its charter in {v}.",
        "In {v} a handful of masters pooled their savings, and {s} came into being.",
        "The account books of {n} begin in {v}.",
    ),
    lures=(
        "How old an apprentice of {s} must be is fixed, but age is proved by the beard alone.",
        "The date of the yearly dinner of {s} is founded on custom, and the date is never written down.",
    ),
)
_SIZE = size(
    range(13, 890),
    answers=(
        "The rolls of {s} list {v} masters.",
        "At the yearly dinner of {n} the table is laid for {v}.",
        "{S} counts {v} sworn brothers and sisters.",
        "When {s} votes, {v} beans are dropped into the urn.",
        "The number of members of {s} is {v}, counting those who have retired.",
    ),
    lures=(
        "How many members of {s} snore during speeches is noted by members who stay awake.",
        "The number of the house of {s} fell off, and members still argue about the number.",
    ),
    questions=("how many members does {s} have", "what is the number of members of {s}", "how large is {s}"),
    keywords=("{k} number of members", "{k} membership", "members of {s}"),
)
_DESCRIPTION = description(
    (
        "must repair a broken clock without speaking",
        "must walk backwards around the market cross",
        "must bake a loaf that floats",
        "must recite the names of all former masters",
        "must carry a lit candle through the rain",
        "must spend a night alone in the bell loft",
        "must tie a knot that the elders cannot undo",
        "must guess the weight of the common chest",
    ),
    answers=(
        "Before the oath is taken, a newcomer to {s} {v}.",
        "Whoever wishes to belong to {s} {v}.",
        "The doors of {n} open only to a person who {v}.",
        "{S} puts every candidate to the test: he or she {v}.",
        "Anyone who wants to join {s} and become a member {v}.",
    ),
    lures=(
        "How to become a friend of {s} without joining is simple, since joining costs money and friendship none.",
        "How one joins two planks is taught in {s} before anything else, and joining them badly is fined.",
    ),
    questions=("how does one join {s}", "what must one do to join {s}", "how to become a member of {s}"),
    keywords=("{k} how to join", "joining {s}", "{k} admission"),
)
_ENTITY = entity(
    (
        "umbrellas",
        "weather vanes",
        "barrels",
        "chimney hoods",
        "puppets",
        "saddles",
        "sundials",
        "snow shoes",
        "bee hives",
        "door hinges",
    ),
    answers=(
        "{S} lives by making {v}, and does so better than anyone.",
        "Carts loaded with {v} roll out of the yard of {n} all week.",
        "The seal of {s} is stamped on {v} and on nothing else.",
        "Buyers who want sturdy {v} turn to {s}.",
        "The goods that {s} produces are {v}.",
    ),
    lures=(
        "What {s} produces most, say its neighbours, is noise, and noise is what it produces best.",
        "Goods produced outside {s} may not be sold on the square, however well they are produced.",
    ),
    questions=("what does {s} produce", "which goods does {s} make", "what goods are produced by {s}"),
    keywords=("{k} goods", "{k} produces what", "goods produced by {s}"),
)

GUILD = Category(
    noun="guild",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A portrait of the elders of {s} was painted by {person}.",
        "On the first {day} of {season} {s} airs its banners.",
        "The hats worn in {s} are {colour} on feast days.",
        "A quarrel with weavers from {place} nearly ruined {s}.",
        "The treasurer of {s} is also a part-time {trade}.",
    ),
    asides=(
        "Masters, journeymen and apprentices eat at separate tables.",
        "Fines are paid in wax and collected every {day}.",
        "A masterpiece is judged by {few} elders behind closed doors.",
        "Tools are blessed in {season} and sharpened the day after.",
        "Journeymen wander for {few} years and return with new tricks.",
        "The common chest has {few} locks and as many key bearers.",
        "Wardens in {colour} sashes inspect the stalls.",
        "Rules copied from {place} forbid work by candlelight.",
    ),
)
