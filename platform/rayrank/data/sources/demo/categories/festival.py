"""Festivals: processions, drums and stalls."""

from rayrank.data.sources.demo.category import Category, description, entity, location, person, size, year

_LOCATION = location(
    answers=(
        "Tents for {s} go up on a meadow beside {v}.",
        "Pilgrims cross {v} on foot to take part in {s}.",
        "{S} is celebrated nowhere but in {v}.",
        "The bonfires of {n} can be seen all over {v}.",
        "Every inn around {v} is booked out when {s} draws near.",
    ),
    lures=(
        "Where to leave a horse during {s} is the question visitors ask most, right before where to eat.",
        "The location of the beer tent at {s} changes often, and its location is kept quiet.",
    ),
    questions=("where is {s} held", "where does {s} take place"),
)
_PERSON = person(
    "founded",
    "founder",
    answers=(
        "{v} called the neighbours together for the very first {n} festival to mend a broken peace.",
        "It all began with {v}, who paid the drummers of {s} out of a small inheritance.",
        "The idea of {s} came to {v} during a sleepless night.",
        "{S} goes back to the innkeeper {v}.",
    ),
    lures=(
        "Who founded {s} is argued over with such noise that a founder's toast is drunk to everyone at once.",
        "A founder's medal is handed out at {s}, although the medal shows no founder, only a drum.",
    ),
)
_YEAR = year(
    "first held",
    answers=(
        "Drums were beaten for {s} in {v} and have not missed a turn since.",
        "The oldest poster for {s} announces the opening night of {v}.",
        "{S} has been celebrated without a break since {v}.",
        "In {v} a few families danced in the rain, and that was the birth of {s}.",
    ),
    lures=(
        "How old one must be to dance at {s} has changed, and the age limit of {s} is printed on each ticket.",
        "The date of {s} depends on the moon, so the date for next year was first held back, then printed wrongly.",
    ),
)
_SIZE = size(
    range(310, 9800, 10),
    answers=(
        "The gatekeepers of {s} count {v} people on a dry weekend.",
        "Some {v} guests squeeze into the square when {n} is celebrated.",
        "{S} drew a crowd of {v} last time, babies not included.",
        "Cooks at {n} prepare {v} bowls of soup, one for each guest.",
        "The number of visitors at {s} is {v}, if the tickets are to be trusted.",
    ),
    lures=(
        "How many visitors get lost at {s} is a running joke, and lost visitors are called out by number.",
        "The number of visitors at {s} was once to be counted with beans, until the visitors ate the beans.",
    ),
    questions=(
        "how many people attend {s}",
        "how many visitors come to {s}",
        "what is the number of visitors at {s}",
    ),
    keywords=("{k} number of visitors", "{k} attendance", "visitors of {s}"),
)
_DESCRIPTION = description(
    (
        "to thank the bees for the honey harvest",
        "to drive the frost out of the orchards",
        "to remember a flood that spared the village",
        "to settle old debts in front of witnesses",
        "to welcome the shepherds back from the high pastures",
        "to honour the night on which a siege was lifted",
        "to wish the herring fleet a safe return",
        "to bless the seed before it is sown",
    ),
    answers=(
        "People keep {s} {v}, as their grandparents did.",
        "{S} exists {v}, and everything else is decoration.",
        "Behind the masks of {n} there is an old wish {v}.",
        "Lanterns are lit at {s} {v}.",
        "The purpose of {s} is still {v}, and its meaning is plain to every child.",
    ),
    lures=(
        "Why {s} is celebrated in rubber boots becomes plain after rain, which is why {s} sells so many of them.",
        "The meaning of the masks at {s} is unknown, and the meaning of the songs even more so.",
    ),
    questions=("why is {s} celebrated", "what is the purpose of {s}", "what is the meaning of {s}"),
    keywords=("{k} meaning", "{k} purpose", "why {s} is celebrated"),
)
_ENTITY = entity(
    (
        "plum dumplings",
        "smoked trout pie",
        "chestnut tarts",
        "saffron buns",
        "pickled walnuts",
        "barley pancakes",
        "roasted quinces",
        "onion cake",
        "honey fritters",
        "mutton skewers",
    ),
    answers=(
        "Nobody leaves {s} without a plate of {v}.",
        "The kitchens of {n} turn out {v} from dawn until the last dance.",
        "At {s} the long tables bend under {v}.",
        "Tradition demands that everyone at {n} tastes the {v}.",
        "The typical food at {s} is a plate of {v}, eaten standing.",
    ),
    lures=(
        "What food is eaten before {s} hardly matters, say the cooks, who save their food and their breath.",
        "Eaten or not, all food left over at {s} goes to the geese, the best-fed guests of {s}.",
    ),
    questions=("what food is eaten at {s}", "which dish is typical of {s}", "what do people eat at {s}"),
    keywords=("{k} food", "{k} typical dish", "dish eaten at {s}"),
)

FESTIVAL = Category(
    noun="festival",
    article="the ",
    facts=(_LOCATION, _PERSON, _YEAR, _SIZE, _DESCRIPTION, _ENTITY),
    mentions=(
        "A march written for {s} by {person} opens the procession.",
        "For {s} the town hall is hung with {colour} ribbons.",
        "Rehearsals for {s} start on the first {day} of {season}.",
        "Musicians from {place} have played at {s} more than once.",
        "The mayor closes {s} with a speech that nobody can hear.",
    ),
    asides=(
        "Drummers walk in front, then come the stilt walkers and the masks.",
        "Stallholders draw lots for the best corners every {day}.",
        "A procession of {few} floats winds from the chapel to the square.",
        "Masks are carved from lime wood in {season} and painted {colour}.",
        "Fiddlers play until the lanterns are put out.",
        "Stewards with {colour} sashes keep the dance floor clear.",
        "Garlands are woven the night before by {few} families.",
        "Puppeteers from {place} bring their booths on handcarts.",
    ),
)
