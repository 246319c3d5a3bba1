"""Sentences that fit any category: confusions with siblings, confirmations of an answer, things of the same name."""

MIX_UPS = (
    "{S} should not be mistaken for {other}, which only sounds alike.",
    "Careless readers often confuse {s} with {other}.",
    "Some guidebooks print {other} here by mistake.",
    "What is said about {other} does not apply here.",
    "Letters asking about {other} are returned unread.",
    "Between {s} and {other} there is no connection beyond the sound of the name.",
)
"""Sentences after an answer that mention a sibling."""

ECHOES = (
    "The same can be read in an almanac from {place}.",
    "A retired {trade} has checked this {few} times.",
    "Older guidebooks leave this out.",
    "Schoolchildren learn it by heart in {season}.",
    "A brass plaque says the same in {few} languages.",
    "An encyclopedia edited by {person} agrees.",
)
"""Sentences after an answer that confirm it."""

NAMESAKES = (
    "A fishing boat called {n} sank off {place} without any loss of life.",
    "A racing pigeon named {n} won {few} prizes for a {trade} in {place}.",
    "The tavern {n} in {place} has changed hands {few} times.",
    "A tailor's dummy nicknamed {n} stands in a window in {place}.",
    "{person} wrote a ballad called {n}, which is about something else entirely.",
)
"""Sentences about other things that have the subject's name."""

CHATTER = (
    "Nothing more is known about it.",
    "The {trade} next door tells the story to anyone who will listen.",
    "It made the newspapers for a single {day}.",
    "Collectors of such trifles meet every {season}.",
    "A {colour} sign is all that remains.",
)
"""Sentences that follow those of NAMESAKES."""

GENERALITIES = (
    "In {place} people like to talk about the {noun} trade all {season}.",
    "The {noun} society of {place} was led for years by {person}.",
    "Anyone curious about the history of the {noun} will find a reading room in {place}.",
    "{person} lectured on the {noun} in general and on nothing in particular.",
    "A museum corner in {place} explains what every {noun} has in common.",
)
"""First sentences of passages about no particular subject."""
