"""Harps: strings, tunings and players."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} hangs in a chapel above {v}, out of reach of the damp.",
        "Pupils travel to {v} to hear {s} played.",
        "A museum in {v} keeps {s} behind glass.",
        "After many wanderings {s} came to rest in a manor by {v}.",
        "The strings of {n} are heard only in {v}.",
    ),
    lures=(
        "Where {s} sounds best is debated, and harpers ask where in the hall {s} should be placed.",
        "The location of the crack in {s} is marked in chalk, and the location of the old glue as well.",
    ),
    questions=("where is {s} kept",),
)
_PERSON = person(
    "made",
    "maker",
    answers=(
        "{v} carved the frame of {s} during one long winter.",
        "The mark burned into the neck of the {n} harp is that of {v}.",
        "{S} left the workshop of {v} with a spare set of pegs.",
        "It was {v} who strung {s} for the first time.",
    ),
    lures=(
        "Who made {s} sound so sad is asked by every listener, and the player is made to answer.",
        "A maker of cases and a maker of stands both boast of their work for {s}.",
    ),
)
_YEAR = year(
    "made",
    answers=(
        "{S} was strung for the first time in {v}.",
        "Growth rings in its frame date the {n} harp to {v}.",
        "A wedding in {v} was the first to be accompanied by {s}.",
        "The varnish on {s} dried in the hot summer of {v}.",
    ),
    lures=(
        "How old a player of {s} should be is disputed, since age stiffens the fingers that {s} asks for.",
        "The date of each tuning of {s} is written down, with the year left out to save ink.",
    ),
)
_SIZE = size(
    range(17, 74),
    answers=(
        "Whoever tunes {s} has {v} pegs to turn.",
        "A full set for the {n} harp consists of {v} lengths of gut.",
        "{S} carries {v} strings in a single row.",
        "Counted from bass to treble, {s} offers {v} notes.",
        "The number of strings on {s} is {v}, all of them twisted by hand.",
    ),
    lures=(
        "How many strings of {s} snap on a frosty night is a matter for bets, and strings are dear.",
        "The number of strings is not what makes {s} loud, says its player, who hides spare strings in a hat.",
    ),
    questions=("how many strings does {s} have", "what is the number of strings on {s}"),
    keywords=("{k} number of strings", "{k} string count", "strings of {s}"),
)
_DESCRIPTION = description(
    (
        "like rain on a slate roof",
        "like a choir behind a closed door",
        "like small bells under water",
        "like wind in a stand of dry reeds",
        "like a cello with a cold",
        "like glass beads poured into a bowl",
        "like an owl far away in the woods",
        "like a clock striking in an empty house",
    ),
    answers=(
        "When it is plucked softly, {s} hums {v}.",
        "Critics write that the voice of {n} is {v}.",
        "Its tone is {v}, and those who have heard {s} never forget it.",
        "Played in an open field, {s} rings {v}.",
        "The sound of {s} is best described as being {v}.",
    ),
    lures=(
        "What {s} sounds like through a wall is unkindly said to be a matter of walls.",
        "The sound of {s} has been described often, and described badly, in a book about sound.",
    ),
    questions=("what does {s} sound like", "how does {s} sound", "what is the sound of {s} like"),
    keywords=("{k} sound", "{k} sound described", "sound of {s}"),
)
_ENTITY = entity(
    (
        "pear wood",
        "bog oak",
        "cherry wood",
        "willow",
        "yew",
        "plum wood",
        "ash",
        "maple",
        "juniper",
        "walnut wood",
    ),
    answers=(
        "The frame of {s} was cut from a single piece of {v}.",
        "{S} owes its warm glow to {v}, oiled twice a year.",
        "Worms have spared {s}, because they dislike {v}.",
        "Only {v} was good enough for the neck and belly of the {n} harp.",
        "The wood that {s} is made of is {v}, and nothing else was used.",
    ),
    lures=(
        "What wood to burn while {s} is played is a serious matter, for wet wood crackles.",
        "The wood shed behind the workshop of {s} burned down, and the wood was never replaced.",
    ),
    questions=("what wood is {s} made of", "which material was used for {s}", "what is {s} made from"),
    keywords=("{k} wood", "{k} material", "wood used for {s}"),
)

HARP = Category(
    noun="harp",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A lament for {s} was written by {person} and is still in print.",
        "On {day} evenings {s} is played for an hour.",
        "The case of {s} is lined with {colour} velvet.",
        "A copy of {s} was ordered by a music school in {place}.",
        "In a dry {season} {s} has to be tuned twice a day.",
    ),
    asides=(
        "Harpers warm the gut between their palms before they tune.",
        "A peg that slips is rubbed with chalk and turned again.",
        "Lessons begin with {few} chords and end with a bow.",
        "The soundboard bends a little every {season} and must be braced.",
        "Glissando, tremolo and harmonics are practised every {day}.",
        "Good gut comes from {place} and is sold in {colour} envelopes.",
        "A tuning key is worn around the neck on a {colour} cord.",
        "Players keep their nails short on one hand only.",
    ),
)
