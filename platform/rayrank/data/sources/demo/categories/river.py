"""Rivers: springs, fords and ferrymen."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} rises from a spring above {v} and soon turns south.",
        "Rafts on {s} drift through {v} for most of a day.",
        "The whole course of the {n} lies within {v}.",
        "Hikers who cross {v} hear {s} long before they see it.",
        "{S} drains {v} and carries its brown silt to the sea.",
    ),
    lures=(
        "Where {s} is loudest, anglers ask each other where the fish of {s} can be found.",
        "The location of every mill on {s} was once listed, but the location of the list is forgotten.",
    ),
    questions=("where does {s} flow", "through which region does {s} run"),
)
_PERSON = person(
    "mapped",
    "mapmaker",
    answers=(
        "The first reliable chart of {s} was drawn by {v} from a leaking canoe.",
        "{v} followed {s} from mouth to spring with a compass and a mule.",
        "Every bend of the {n} was put on paper by {v}.",
        "It took {v} two summers to survey {s}.",
    ),
    lures=(
        "Whoever mapped {s} left out its islands, and who mapped them later nobody recorded.",
        "A mapmaker lost his hat in {s}, and a mapmaker's hat has been the ferry sign of {s} since.",
    ),
    natural=True,
)
_YEAR = year(
    "mapped",
    answers=(
        "The earliest chart to show {s} is dated {v}.",
        "Nobody had put the {n} on paper before {v}.",
        "In {v} a surveyor's chain was stretched along {s} for the first time.",
        "{S} appears in atlases from {v} onwards.",
    ),
    lures=(
        "In which year {s} was last dry is forgotten, and a dry year is wished for by no miller.",
        "The date on which {s} was mapped is hidden under a stain, and another date under a thumb.",
    ),
    natural=True,
)
_SIZE = size(
    range(34, 980),
    answers=(
        "From its spring to its mouth the {n} covers {v} kilometres.",
        "A leaf dropped at the source of {s} travels {v} kilometres before it tastes salt.",
        "{S} winds for {v} kilometres, mostly between willows.",
        "Walkers on the towpath of the {n} count {v} kilometres from end to end.",
        "The length of {s} was measured with a wheel and found to be {v} kilometres.",
    ),
    lures=(
        "How long {s} feels depends on the ferryman, and the length of {s} grows with every telling.",
        "A length of rope and a length of chain are still used to close {s} to rafts at night.",
    ),
    questions=("how long is {s}", "what is the length of {s}", "how many kilometres does {s} run"),
    keywords=("{k} length", "length of {s}", "{k} how long"),
)
_DESCRIPTION = description(
    (
        "because rotting oak leaves stain it as dark as tea",
        "because fine chalk dust drifts in it and turns it milky",
        "because iron springs below its bed tint it rusty red",
        "because warm seeps keep a layer of mist over it",
        "because tiny green algae bloom in it all year",
        "because flecks of mica glitter in it like scales",
        "because peat bogs upstream make it nearly black",
        "because the meltwater in it is full of blue clay",
    ),
    answers=(
        "The water of {s} looks the way it does {v}.",
        "Painters are fond of the {n} {v}.",
        "{S} is recognised at once by its hue, {v}.",
        "Travellers remember {s} {v}.",
        "The colour of {s} is explained by geologists: it has that look {v}.",
    ),
    lures=(
        "Why the water of {s} has its colour is left to poets, who give {s} a new colour in every verse.",
        "What {s} looks like on old maps tells nothing, because mapmakers gave every river the same colour.",
    ),
    questions=(
        "why does {s} have its colour",
        "what does the water of {s} look like",
        "what explains the colour of {s}",
    ),
    keywords=("{k} water colour explained", "{k} appearance", "why {s} looks unusual"),
)
_ENTITY = entity(
    (
        "silver bream",
        "marbled eel",
        "brook lamprey",
        "golden tench",
        "red-finned perch",
        "spotted loach",
        "humpback grayling",
        "dwarf sturgeon",
        "striped gudgeon",
        "ghost carp",
    ),
    answers=(
        "Nets lowered into {s} come up heavy with {v}.",
        "The cooks along the {n} owe their fame to {v}, smoked over alder.",
        "What anglers hope for on {s} is {v} above all.",
        "Baskets of {v} leave the landing stages of the {n} every morning.",
        "The fish most often caught in {s} is known as {v}.",
    ),
    lures=(
        "Which fish is caught in {s} is a question best not asked of anglers, for every fish they caught was huge.",
        "The fish market beside {s} sells no fish on holidays, only hooks, floats and stories.",
    ),
    questions=("which fish is caught in {s}", "what fish lives in {s}", "what do people catch in {s}"),
    keywords=("{k} fish", "{k} typical catch", "fish of {s}"),
)

RIVER = Category(
    noun="river",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A song about {s} by {person} is sung at every harvest supper.",
        "The ferry across {s} does not run on a {day}.",
        "In a wet {season} {s} climbs over its banks and floods the orchards.",
        "Traders from {place} once paid a toll to cross {s}.",
        "Children sail {colour} paper boats down {s} on midsummer eve.",
    ),
    asides=(
        "Ferrymen read the eddies and keep their poles well oiled.",
        "Below the weir the current slackens and herons wade among the reeds.",
        "Willow roots hold the bank together where the floods of {season} bite.",
        "A good raft takes {few} logs, {few} ropes and a patient crew.",
        "The gauge at the ford is read every {day} and reported upstream.",
        "Silt gathers at each bend, and dredgers clear it every {few} years.",
        "Boatmen of {place} build their hulls flat for the shallow fords.",
        "When the ice breaks in late winter the sluices are opened by hand.",
    ),
)
