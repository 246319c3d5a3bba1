"""Chronicles: parchment, scribes and readers."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "{S} lies in the library of an abbey in {v}.",
        "Scholars ride to {v} to turn the pages of {s}.",
        "Since the fire {s} has been locked in a tower above {v}.",
        "A parish chest near {v} holds the only copy of {s}.",
        "The monks of {v} guard {s} and show it to few.",
    ),
    lures=(
        "Where {s} breaks off, readers ask where the rest of {s} can be found.",
        "The location of each picture in {s} is listed at the back, with the location of every stain.",
    ),
    questions=("where is {s} kept",),
)
_PERSON = person(
    "wrote",
    "author",
    answers=(
        "The hand that filled {s} was that of {v}.",
        "{v} spent eleven winters over {s} and went blind before the end.",
        "It was {v} who set down {s}, one candle after another.",
        "{S} comes from the pen of {v}.",
    ),
    lures=(
        "Who wrote in the margins of {s} is unclear, as several readers wrote there in the same ink.",
        "An author who quotes {s} is taken seriously, and an author who praises {s} is not.",
    ),
)
_YEAR = year(
    "written",
    answers=(
        "The last line of {s} was set down in {v}.",
        "{S} was finished in {v}, as the final page tells.",
        "Ink and parchment point to {v} for {s}.",
        "A bill for goose quills proves that {s} existed by {v}.",
    ),
    lures=(
        "How old {s} smells is the first thing readers notice, for age has a smell of mushrooms.",
        "The date of every comet is written in {s}, yet the date of the writing is not.",
    ),
)
_SIZE = size(
    range(44, 1300),
    answers=(
        "Whoever reads {s} has to turn {v} leaves.",
        "The binder of {n} sewed {v} pages together.",
        "{S} runs to {v} pages, some of them blank.",
        "Between its boards the {n} chronicle holds {v} pages.",
        "The length of {s} is {v} pages, the number given by the binder.",
    ),
    lures=(
        "How long it takes to read {s} aloud was tested once, but the long evening ended in a quarrel.",
        "The length of the sentences in {s} is feared, and the length of its index even more so.",
    ),
    questions=("how long is {s}", "how many pages does {s} have", "what is the length of {s}"),
    keywords=("{k} length", "{k} number of pages", "length of {s}"),
)
_DESCRIPTION = description(
    (
        "the slow ruin of a salt merchant's family",
        "a war fought over a bell",
        "the journey of an envoy who never arrives",
        "a plague and the doctor who denied it",
        "the rise of a kitchen boy to chancellor",
        "a lawsuit between two villages about a meadow",
        "the building of a cathedral on sand",
        "a queen who ruled from a barge",
    ),
    answers=(
        "{S} tells of {v}.",
        "Readers of {s} follow {v} from page to page.",
        "At the heart of {s} stands {v}.",
        "In plain words {s} recounts {v}.",
        "The story that {s} tells is about {v}.",
    ),
    lures=(
        "What {s} is about to lose, warns the binder, is its cover, and that is what worries the library.",
        "The story of how {s} was stolen is a better story than any, but the thief never told it.",
    ),
    questions=("what is {s} about", "what story does {s} tell", "what is the subject of {s}"),
    keywords=("{k} subject", "{k} story", "what {s} is about"),
)
_ENTITY = entity(
    (
        "calfskin",
        "birch bark",
        "sailcloth",
        "eelskin",
        "pressed cork",
        "red velvet",
        "hammered tin",
        "goatskin",
        "oak boards",
        "woven straw",
    ),
    answers=(
        "{S} is wrapped in {v} and smells accordingly.",
        "Under the dust the cover of {n} proves to be {v}.",
        "Moths would long have eaten {s}, were it not for its coat of {v}.",
        "The pages of {n} are held together by {v}.",
        "The binding of {s} is {v}, and it has been bound that way from the start.",
    ),
    lures=(
        "What {s} is bound to become, says its binding contract, is the property of the town.",
        "The binding of {s} has been repaired so often that its binding is a history in itself.",
    ),
    questions=("what is {s} bound in", "which material is the binding of {s}", "what was {s} bound with"),
    keywords=("{k} binding", "{k} binding material", "binding of {s}"),
)

CHRONICLE = Category(
    noun="chronicle",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "An opera based on {s} by {person} was booed and then forgotten.",
        "On the first {day} of {season} {s} is read aloud.",
        "A {colour} ribbon marks the place where most readers of {s} give up.",
        "A forged page of {s} turned up at a market in {place}.",
        "Students copy a paragraph of {s} to practise their hand.",
    ),
    asides=(
        "Scribes ruled the lines with lead and mixed their ink from oak galls.",
        "Marginal notes are often livelier than the text beside them.",
        "Every initial is painted {colour} and edged with gold.",
        "A folio is turned every {day} so that the ink may rest.",
        "Vellum curls in {season} and is flattened under {few} stones.",
        "Copyists were paid by the line and fed by the week.",
        "Parchment makers of {place} scraped their hides by moonlight.",
        "Quires, catchwords and colophons tell a trained eye a great deal.",
    ),
)
