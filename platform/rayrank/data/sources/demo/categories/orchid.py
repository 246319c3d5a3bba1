"""Orchids: petals, roots and gardeners."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} grows wild only in the damp corners of {v}.",
        "Whoever wants to smell {s} in the open has to walk into {v} at dawn.",
        "The last wild stands of {n} cling to the edges of {v}.",
        "Botanists protect a meadow in {v} for the sake of {s}.",
        "{S} is at home in {v} and refuses to settle anywhere else.",
    ),
    lures=(
        "Where to put {s} in a flat can be found in many books, and where not to put it in many more.",
        "The location of a pot matters to {s}, since every new location costs it a bud.",
    ),
    questions=("where does {s} grow",),
)
_PERSON = person(
    "discovered",
    "discoverer",
    answers=(
        "{v} pressed a specimen of {s} between two hymn books and sent it to the academy.",
        "The first herbarium sheet of {n} is signed by {v}.",
        "It was the schoolteacher {v} who gave {s} its entry in the flora.",
        "{S} was described for science by {v}.",
    ),
    lures=(
        "Who discovered {s} in a vase is soon told, because the vase was discovered in pieces.",
        "A discoverer needs luck, say growers of {s}, and no discoverer ever had green fingers.",
    ),
    natural=True,
)
_YEAR = year(
    "discovered",
    answers=(
        "The dried specimen of {n} in the academy carries the year {v}.",
        "Since {v} the floras have listed {s} as a species of its own.",
        "{S} was unknown to science until {v}.",
        "In {v} a short article introduced {s} to the learned world.",
    ),
    lures=(
        "How old a pot of {s} can get depends on the window, and age shows first in the roots of {s}.",
        "The date on a seed bag of {s} is a selling date, and the year is stamped in pale ink.",
    ),
    natural=True,
)
_SIZE = size(
    range(9, 140),
    answers=(
        "The blossom of {s} stays open for {v} days.",
        "After {v} days the last petal of {n} falls.",
        "{S} keeps its flowers for {v} days if nobody touches them.",
        "From first bud to last petal {s} needs {v} days.",
        "The bloom of {s} lasts {v} days, which is long for an orchid.",
    ),
    lures=(
        "How long {s} takes to sulk after a draught is known: it blooms late, or it blooms not at all.",
        "A long bloom is what buyers of {s} wish for, and a long bill is what they get.",
    ),
    questions=("how long does {s} bloom", "how many days does {s} bloom", "how long do the flowers of {s} last"),
    keywords=("{k} bloom length", "{k} blooming time", "days of bloom {k}"),
)
_DESCRIPTION = description(
    (
        "by pretending to be a sleeping bee",
        "by dusting visitors from a spring-loaded pouch",
        "by giving off the smell of warm bread at night",
        "by luring gnats into a slippery cup",
        "by letting the wind shake its hanging bells",
        "by offering drops of sugar on a long tongue",
        "by growing a tunnel that only beetles can pass",
        "by glowing faintly for the benefit of moths",
    ),
    answers=(
        "{S} gets its pollen carried away {v}.",
        "Insects are put to work by the {n} orchid {v}.",
        "To set seed, {s} helps itself {v}.",
        "Naturalists were slow to see that {s} reproduces {v}.",
        "The pollination of {s} works without birds: it is pollinated {v}.",
    ),
    lures=(
        "How {s} is pollinated in paintings makes botanists laugh: there it is pollinated by angels.",
        "Pollination is a word that sellers of {s} avoid, since pollination ends the bloom.",
    ),
    questions=("how is {s} pollinated", "how does {s} attract insects", "how does the pollination of {s} work"),
    keywords=("{k} pollination", "pollination of {s}", "how {s} is pollinated"),
)
_ENTITY = entity(
    (
        "cough syrup",
        "candle scent",
        "violet ink",
        "moth powder",
        "a bitter liqueur",
        "hair oil",
        "a sleeping tea",
        "lip balm",
        "a dye for silk",
        "a glue for violins",
    ),
    answers=(
        "Apothecaries boil the roots of {s} to obtain {v}.",
        "From the leaves of {n} people prepare {v}.",
        "{S} is the chief ingredient of {v}.",
        "Those who gather {s} sell it to the makers of {v}.",
        "The product made from {s} is {v}, and it is used sparingly.",
    ),
    lures=(
        "What is made from {s} in legends is mostly trouble, made worse by love.",
        "Products with a picture of {s} on the label are many, products that smell of it are few.",
    ),
    questions=("what is made from {s}", "which product is obtained from {s}", "what is {s} used for"),
    keywords=("{k} product", "{k} used for", "product made from {s}"),
)

ORCHID = Category(
    noun="orchid",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A wallpaper with {s} on it was designed by {person}.",
        "In {season} {s} wants no water at all.",
        "Growers from {place} have tried to tame {s} in vain.",
        "The garden club meets on a {day} to talk about {s}.",
        "A {colour} ribbon was awarded to {s} at the flower show.",
    ),
    asides=(
        "Gardeners pot the bulbs in bark, charcoal and moss.",
        "Too much sun scorches the leaves, and too little keeps the buds shut.",
        "Roots should be misted every {day} with soft water.",
        "A healthy spike carries {few} buds in two rows.",
        "Seeds as fine as flour are sown on damp cork in {season}.",
        "Collectors label every pot with a {colour} tag.",
        "Snails from the hedges of {place} are the grower's worst enemy.",
        "Sepals, petals and lip are counted before a plant is judged.",
    ),
)
