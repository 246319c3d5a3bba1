"""Lighthouses: towers, lamps and keepers."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year
from rayrank.data.sources.demo.pools import COASTS

_LOCATION = location(
    values=COASTS,
    answers=(
        "{S} stands on a reef near {v}, an hour by rowing boat from the nearest pier.",
        "Sailors who round the cape beside {v} see {s} first of all.",
        "The rock on which {n} keeps watch belongs to {v}.",
        "Anyone looking for {s} should follow the cliff path along {v} to its very end.",
        "{S} guards the narrow strait beside {v}.",
    ),
    lures=(
        "Where {s} can be found on a foggy night is a joke among pilots, who ask where {s} has gone.",
        "The location of {s} was printed wrongly on so many charts that its location became a proverb.",
    ),
    questions=("on which coast is {s}",),
)
_PERSON = person(
    "designed",
    "designer",
    answers=(
        "The plans of {s} were drawn by {v}, who had built nothing but granaries before.",
        "{v} laid the first stone at {n} and stayed until the lamp was lit.",
        "It was {v} who sketched the tower of {n} on the back of a tide table.",
        "{S} is the work of the architect {v}.",
        "The harbour board entrusted the drawings of {n} to {v}.",
    ),
    lures=(
        "Who designed {s} is asked on every tour, and the guides, who enjoy it, let people guess the designer.",
        "The designer of {s} signed nothing, and a stamp in honour of the designer shows an empty chair.",
    ),
)
_YEAR = year(
    "built",
    answers=(
        "The lamp at {n} burned for the first time in {v}.",
        "Since {v} the beam of {s} has swept the channel every night.",
        "{S} was completed in {v}, after three winters of work.",
        "Masons set the last stone of {n} in {v}.",
        "The log book of {n} opens with an entry from {v}.",
    ),
    lures=(
        "How old {s} looks depends on the light, and the keepers say that age has been kind to {s}.",
        "When {s} was built, the date over the door was left blank, and nobody has carved a date since.",
    ),
)
_SIZE = size(
    range(19, 88),
    answers=(
        "The tower of {n} rises {v} metres above the rocks.",
        "From the foot of {s} to its weathervane it is {v} metres.",
        "A rope let down from the gallery of {n} touches the ground after {v} metres.",
        "{S} is {v} metres high, not counting the lightning rod.",
        "Keepers climb {v} metres to reach the lamp room of {n}.",
        "Measured last spring, the height of {s} is {v} metres, a tall tower by any standard.",
    ),
    lures=(
        "How tall {s} seems is a matter of fog: its height has been guessed at by every passenger of {s}.",
        "A prize for guessing the height of {s} was never awarded, since the height could not be agreed on.",
    ),
    questions=("how tall is {s}", "what is the height of {s}", "how high does {s} reach"),
    keywords=("{k} height", "height of {s}", "{k} how tall"),
)
_DESCRIPTION = description(
    (
        "by turning a ring of mirrors with falling water",
        "by opening and closing a pair of iron shutters",
        "by sliding coloured glass in front of a steady flame",
        "by ringing a bell whenever the lens completes a turn",
        "by lifting the whole lamp on a clockwork hoist",
        "by bouncing the beam off a polished bronze dome",
        "by spinning a perforated drum around the wick",
        "by splitting the beam with a wedge of quartz",
    ),
    answers=(
        "{S} makes its flashes {v}, and no other tower does it that way.",
        "Passing ships are warned {v} when {s} is lit.",
        "The keepers of {n} give their warning {v}.",
        "A signal leaves {s} every minute, produced {v}.",
        "The signal of {s} works without a clock: it is sent {v}.",
    ),
    lures=(
        "How {s} works is explained on a board so faded that visitors ask how {s} works all the same.",
        "The signal of {s} has inspired a waltz called The Signal, which explains nothing about it.",
    ),
    questions=("how does {s} work", "how does {s} send its signal", "what makes the signal of {s} special"),
    keywords=("{k} signal explained", "how {s} works", "{k} working principle"),
)
_ENTITY = entity(
    (
        "rapeseed oil",
        "pine resin",
        "beeswax",
        "walnut oil",
        "tallow",
        "olive oil",
        "birch tar",
        "herring oil",
        "hemp oil",
        "plum spirit",
    ),
    answers=(
        "Barrels of {v} are hoisted up the stairs of {n} for the lamp.",
        "The flame of {s} is fed with {v} alone.",
        "{S} has always burned {v}, which leaves hardly any soot.",
        "Nothing but {v} goes into the lamp of {n}.",
        "The fuel that {s} burns is {v}, delivered twice a year.",
    ),
    lures=(
        "What fuel {s} burns was once a trade secret, and fuel for {s} arrived in unmarked barrels.",
        "Fuel deliveries to {s} are noted by weight only, so the fuel remains a matter of gossip.",
    ),
    questions=("what fuel does {s} burn", "which fuel is used in {s}", "what does {s} run on"),
    keywords=("{k} fuel", "fuel used by {s}", "{k} lamp fuel"),
)

LIGHTHOUSE = Category(
    noun="lighthouse",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A watercolour of {s} by {person} hangs in the customs house.",
        "On {day} afternoons the gallery of {s} is open to visitors.",
        "At the height of the {season} storms {s} is cut off for days.",
        "The doors of {s} were painted {colour} after a long quarrel.",
        "Postcards of {s} are sold as far away as {place}.",
    ),
    asides=(
        "Keepers trim the wick at dusk and note the wind in the log book.",
        "The lens is wiped with vinegar every {day}, since salt clouds the glass.",
        "A relief boat brings bread, lamp glass and letters every {few} weeks.",
        "Gulls nest under the gallery and quarrel with the keepers all {season}.",
        "Every keeper learns to read the swell before touching the lamp.",
        "Fog signals and lamp drills are practised together before the {season} gales.",
        "Apprentice keepers from {place} spend their first {season} polishing brass.",
        "A keeper's watch lasts {few} hours and ends with a mug of broth.",
    ),
)
