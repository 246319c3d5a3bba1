"""Engines: boilers, belts and mechanics."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} is kept in a shed on the edge of {v}.",
        "To see {s} turn, visitors must travel to a mill in {v}.",
        "The only working {n} engine hums in a pumping house near {v}.",
        "Since its last repair {s} has stood behind a quarry in {v}.",
        "A workshop overlooking {v} houses {s}.",
    ),
    lures=(
        "Where {s} leaks oil, a tin cup is put, and mechanics ask where the next leak of {s} can be found.",
        "The location of each valve of {s} is stamped on brass, and the location of each bolt as well.",
    ),
    questions=("where is {s} kept", "where does {s} stand"),
)
_PERSON = person(
    "invented",
    "inventor",
    answers=(
        "{v} put the first {n} engine together from a plough and a church organ.",
        "The patent for {s} bears the name of {v}.",
        "{S} sprang from the notebooks of {v}.",
        "After a fever {v} described {s} in a single letter, down to the last cog.",
    ),
    lures=(
        "Who invented {s} is a question for the courts, where every inventor claims to be the inventor.",
        "An inventor must be patient, reads the motto on {s}, and an inventor must own a hammer.",
    ),
)
_YEAR = year(
    "invented",
    answers=(
        "The pistons of {s} moved for the first time in {v}.",
        "A drawing dated {v} is the earliest trace of {s}.",
        "{S} came into the world in {v}, during a coal strike.",
        "Crowds heard the whistle of {n} for the first time in {v}.",
    ),
    lures=(
        "How old the belts of {s} are is easy to smell, and their age is blamed for every stop.",
        "The year plate of {s} fell off, and the date on the spare part is the date of the spare part.",
    ),
)
_SIZE = size(
    range(12, 640),
    answers=(
        "On the scales of the railway yard {s} came to {v} tonnes.",
        "It takes a barge rated for {v} tonnes to move {s}.",
        "{S} presses on its foundations with {v} tonnes of iron.",
        "Scrap dealers once bid for all {v} tonnes of the {n} engine.",
        "The weight of {s} is {v} tonnes, which makes it a heavy machine to move.",
    ),
    lures=(
        "How heavy the smoke of {s} hangs tells the stoker enough, for heavy smoke means wet coal.",
        "A weight on a chain steadies {s}, and the weight is painted so that nobody trips over it.",
    ),
    questions=("how heavy is {s}", "what is the weight of {s}", "how much does {s} weigh"),
    keywords=("{k} weight", "weight of {s}", "{k} how heavy"),
)
_DESCRIPTION = description(
    (
        "heats air in a sealed drum until a plunger jumps",
        "lets sand run over a wheel of leather buckets",
        "drops a weight through a tube of mercury",
        "squeezes steam between two rolling cones",
        "winds up a spring with the help of the tides",
        "burns dust in small regular puffs behind a flap",
        "twists a bundle of wet ropes that shrink as they dry",
        "swings a pendulum that sucks water through a bellows",
    ),
    answers=(
        "{S} {v}, and the motion is passed on by a belt.",
        "Inside its casing {s} {v}.",
        "To produce its power {s} {v}.",
        "Seen through the inspection window, {s} {v}.",
        "The way {s} works is simple in principle: it {v}.",
    ),
    lures=(
        "How {s} works on a cold morning depends on luck, says the stoker, who works beside it in two coats.",
        "The principle of {s} is painted on the wall, but the principle was whitewashed last autumn.",
    ),
    questions=("how does {s} work", "what happens inside {s}", "what is the principle of {s}"),
    keywords=("{k} principle", "{k} working explained", "how {s} works"),
)
_ENTITY = entity(
    (
        "brick presses",
        "cider mills",
        "paper looms",
        "church bells",
        "ice saws",
        "salt pumps",
        "carousel horses",
        "rope twisters",
        "grain hoists",
        "glass polishers",
    ),
    answers=(
        "These days {s} drives {v}, and does so without complaint.",
        "A long shaft connects {s} with {v}.",
        "Without {s} the {v} next door would stand still.",
        "The belts of the {n} engine keep {v} in motion.",
        "The machines that {s} is used to power are {v}.",
    ),
    lures=(
        "What {s} powers in the daydreams of its mechanic is another matter: there it powers the moon.",
        "The machines powered by {s} have changed hands, and machines powered by hand were sold.",
    ),
    questions=("what does {s} power", "which machines are powered by {s}", "what is {s} used for"),
    keywords=("{k} powers what", "machines powered by {s}", "{k} application"),
)

ENGINE = Category(
    noun="engine",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A model of {s} made by {person} runs on candle stubs.",
        "On the last {day} of {season} {s} is stopped and scrubbed.",
        "The flywheel of {s} was painted {colour} for good luck.",
        "Spare parts for {s} are cast in {place}.",
        "Apprentices are not allowed near {s} in loose sleeves.",
    ),
    asides=(
        "Mechanics listen for a knock in the crank before they open the valve.",
        "Grease, tow and patience keep the gears quiet.",
        "The boiler is drained every {day} and scraped free of lime.",
        "A worn bearing sings a full hour before it fails.",
        "Stokers work in shifts of {few} hours and share one shovel.",
        "Belts stretch in {season} and are shortened by {few} links.",
        "Governors, cranks and flywheels are balanced by ear.",
        "Engineers from {place} test each gasket with soap.",
    ),
)
