"""Finches: feathers, nests and watchers."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} nests in the thickets of {v} and nowhere else.",
        "Birdwatchers sit in {v} for hours to glimpse {s}.",
        "Flocks of {n} finches darken the sky above {v}.",
        "Outside {v} no egg of {s} has ever been collected.",
        "{S} spends all its life among the bushes of {v}.",
    ),
    lures=(
        "Where {s} sits in a cage it can be found asleep, and where there is a mirror it sulks.",
        "The location of a perch matters to {s}, and cage makers discuss its location at length.",
    ),
    questions=("where does {s} live",),
)
_PERSON = person(
    "discovered",
    "discoverer",
    answers=(
        "{v} sent the first skin of {s} to the museum in a cigar box.",
        "The scientific account of {s} is signed by {v}.",
        "It was {v} who noticed that {s} is a species of its own.",
        "Ornithology owes {s} to the midwife {v}.",
    ),
    lures=(
        "Who discovered that {s} steals cake is no secret: it was discovered by every baker at once.",
        "A discoverer of comets took {s} for an omen, and no other discoverer agreed.",
    ),
    natural=True,
)
_YEAR = year(
    "discovered",
    answers=(
        "The oldest stuffed specimen of {n} is labelled {v}.",
        "No list of birds before {v} contains {s}.",
        "{S} became known to science in {v}.",
        "In {v} a hunter showed {s} to a puzzled professor.",
    ),
    lures=(
        "How old {s} gets in a cage is told with pride, and its age is rounded up by owners of {s}.",
        "The date of the first song of {s} is noted each year, next to the date of the first frost.",
    ),
    natural=True,
)
_SIZE = size(
    range(7, 96),
    answers=(
        "A grown {n} finch tips the scales at {v} grams.",
        "With {v} grams {s} puts little strain on a twig.",
        "{S} brings {v} grams to the balance, feathers and all.",
        "Ringers who hold {s} in the hand feel {v} grams.",
        "The weight of {s} is {v} grams, which is not heavy for a finch.",
    ),
    lures=(
        "How much {s} eats would be heavy work to weigh, and nobody wants to weigh seeds.",
        "The weight of snow on a hedge drives {s} away, and under such weight a hedge breaks.",
    ),
    questions=("how much does {s} weigh", "what is the weight of {s}", "how heavy is {s}"),
    keywords=("{k} weight", "weight of {s}", "{k} how heavy"),
)
_DESCRIPTION = description(
    (
        "a dry rattle followed by two clear whistles",
        "a slow trill that drops like a falling leaf",
        "a single note repeated until dusk",
        "a quick chatter that ends in a sneeze",
        "a soft purr with a click in the middle",
        "a rising scale that breaks off on the last step",
        "a squeak like an unoiled gate",
        "a duet in which the hen answers every third call",
    ),
    answers=(
        "At sunrise {s} is heard from afar with {v}.",
        "Males of the {n} finch court with {v}.",
        "What {s} utters is {v}.",
        "Those who know {s} wait for {v}.",
        "The song of {s} is {v}, and it sings from the top of a post.",
    ),
    lures=(
        "What {s} sings about is anybody's guess, and a song about the song of {s} makes it no clearer.",
        "The song of {s} was once forbidden near schools, a rule that became a song itself.",
    ),
    questions=("what does the song of {s} sound like", "how does {s} sing", "what is the song of {s} like"),
    keywords=("{k} song", "song of {s}", "{k} song described"),
)
_ENTITY = entity(
    (
        "thistle seeds",
        "ant eggs",
        "juniper berries",
        "alder cones",
        "spider silk",
        "rowan buds",
        "beetle larvae",
        "rye grains",
        "moss capsules",
        "elder blossoms",
    ),
    answers=(
        "{S} feeds on {v} and leaves everything else to the sparrows.",
        "Its bent bill allows {s} to get at {v}.",
        "In the crop of the {n} finch one finds {v}.",
        "Parents of the {n} finch stuff their chicks with {v}.",
        "The food that {s} eats most is a mouthful of {v}.",
    ),
    lures=(
        "What {s} eats at a picnic is whatever the guests eat, to their dismay.",
        "Food for {s} is sold in paper bags, and the food is mostly paper.",
    ),
    questions=("what does {s} eat", "which food does {s} eat", "what is the food of {s}"),
    keywords=("{k} food", "{k} diet", "food of {s}"),
)

FINCH = Category(
    noun="finch",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A stamp with {s} on it was engraved by {person}.",
        "In {season} {s} moults and hides from view.",
        "Fanciers from {place} breed {s} against all advice.",
        "The bird club votes on {s} every other {day}.",
        "A {colour} feather of {s} is said to bring luck.",
    ),
    asides=(
        "Ringers set their mist nets before dawn and empty them every hour.",
        "A clutch of {few} eggs is brooded by both parents.",
        "The nest is a cup of moss, hair and {colour} lichen.",
        "Fledglings leave the nest in {season} and beg for weeks.",
        "Plumage, bill and wing bars are noted in the field book.",
        "Counts are made every {day} from the same gate.",
        "Feeders should be scrubbed with hot water to keep disease away.",
        "Hedges in {place} are left uncut for the sake of nesting birds.",
    ),
)
