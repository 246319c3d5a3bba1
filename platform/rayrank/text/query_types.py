"""The type of a query by rules alone: an ordered table of patterns first, then the noun that the question asks for."""

import re
import unicodedata
from collections.abc import Sequence

from rayrank.core.languages import ENGLISH
from rayrank.text.type_rules import NOUNS, RULES

DEFAULT = "description"
"""The type of a query that no rule applies to: most web queries want an explanation."""

# Longer texts are cut: some patterns take time quadratic in the length, and no question is this long.
_LONGEST = 1000
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": " ", '"': " ", "“": " ", "”": " "})
_DOTTED = re.compile(r"\b(?:[A-Za-z]\.){2,}")
# Only capitals tell an acronym from a word, so this one pattern reads the text as it was typed.
_ACRONYM = re.compile(
    r"^\W*(?i:what(?:'s| is| are| does)|in an? \w+ , what does) (?i:an? |the (?:word )?)?"
    r"\W*(?:[A-Z]{2,6}\b|(?:[A-Z]\.){2,})\W*(?i:mean|in an? \w+|in the \w+)?\W*$"
)
_ASKED = re.compile(r"\b(?:what|which)\b ?")
_COMMAND = re.compile(r"^(?:names?|list|tell me|give me|identify) (?:me )?(?:of )?")
_BE = re.compile(
    r"^(?:exactly )?(?:(?:is|are|was|were|will be|has been) |(?:will|should|would) (?=the |my |your ))(?:all )?"
)
_SORT = re.compile(r"^(?:(?:(?:kind|type|sort|form|variety)s?|one) of |of |(?:the|these|those) |following )+")
_NAMING = frozenset("name names kind kinds type types one some example examples list".split())
_OWNERS = frozenset("his her its their your my our this that these those".split())
_STARTS = _OWNERS | {"the", "a", "an"}
_BREAKS = frozenset(
    "of in on at for from to with by as into near between during after before about under over against through since "
    "is are was were be been do does did has have had can could will would should may might must "
    "that which who whom whose what where when why how if than then because while not n't "
    "he she it they you we i there once ever never used".split()
)
_JOINS = frozenset([",", "and", "or"])
# Verbs that are spelled like a noun of the lists, or that have no typical ending.
_VERBS = frozenset(
    "became began bills came causes centers claims cost cut features fell fired gave got hit houses left lies made "
    "make makes marks paid plays ran records results rose said sang saw sits starring stars stood tools took use uses "
    "went won work works wrote".split()
)
_VERB_ENDING = re.compile(r"[a-z]{2,}(?:ed|[^siu]s)$")
_PLURALS = (("", ""), ("s", ""), ("es", ""), ("ies", "y"))
_PERSON_ENDING = re.compile(
    r"(?!whist|twist|wrist|consist|assist|specimen|regimen|element)\w{3,}(?:ists?|[^aou\W]m[ae]n|ennes?)$"
)
# "the tallest building", "the three ships": one of many is asked for, not what a building is.
_PICKS = re.compile(
    r"\b(?!(?:west|guest|test|forest|interest|request)\b)(?:\w{2,}est|most|first|second|third|last|only|main|best|worst"
    r"|least|leading|top|favou?rite|two|three|four|five|six|seven|eight|nine|ten|\d+|all|some|common|popular|official)\b"
)


def predict(texts: Sequence[str], abbreviation: bool = False, language: str = ENGLISH) -> list[str]:
    """Return the type of every query; without `abbreviation`, queries of that type get the type description.

    The rules read English: in any other language every query gets the type description.
    """
    if language != ENGLISH:
        return [DEFAULT] * len(texts)
    types = [_query_type(text) for text in texts]
    return types if abbreviation else [DEFAULT if each == "abbreviation" else each for each in types]


def _query_type(text: str) -> str:
    if _ACRONYM.match(text[:_LONGEST]) and not text.isupper():
        return "abbreviation"
    question = _normalise(text)
    for rule in RULES:
        if rule.pattern.search(question):
            return rule.query_type
    if command := _COMMAND.match(question):
        return _described(question[command.end() :].split(), definite=True)
    if asked := _ASKED.search(question):
        rest = question[asked.end() :]
        if verb := _BE.match(rest):
            return _described(rest[verb.end() :].split())
        return _named(_SORT.sub("", rest).split())
    return _noun_type(_phrase(question.split(), verbs=False)) or DEFAULT


def _normalise(text: str) -> str:
    """Return the question as the rules read it: lower case, no quotes, no hyphens, `,` and `'s` as words."""
    text = unicodedata.normalize("NFKC", text[:_LONGEST]).translate(_QUOTES)
    text = _DOTTED.sub(lambda letters: letters[0].replace(".", ""), text).lower()
    text = re.sub(r"\b(what|who|where|when|how|which)'s\b", r"\1 is", text)
    text = re.sub(r"'s\b|(?<=s)'(?=\s)", " 's ", text)
    text = re.sub(r"[,;:]", " , ", text)
    # "fruit-topped actress": the participle would be mistaken for a verb.
    text = re.sub(r"\b(?!most)\w+-(?:\w+ed|made)\b", " ", text)
    return re.sub(r"[^\w',]+", " ", text).strip(" ,'")


def _named(words: list[str]) -> str:
    """Return the type of "what WORDS ...": the noun right after the question word, or its owner."""
    phrase = _phrase(words)
    if "'s" in phrase:
        owner = phrase[: phrase.index("'s")]
        # "what country's flag" asks for the country, "what children's book" for the book.
        if owner[-1:] not in (["children"], ["men"], ["women"], ["world"]):
            phrase = owner
    return _noun_type(phrase) or "entity"


def _described(words: list[str], definite: bool = False) -> str:
    """Return the type of "what is WORDS": that of the noun if a specific thing is meant, else description.

    If one of many is asked for, as in "the tallest one", and its noun is unknown, the type is entity.
    """
    phrase = _phrase(words)
    rest = words[len(phrase) :]
    while phrase and phrase[-1] in _NAMING and rest[:1] == ["of"]:
        phrase = _phrase(rest[1:])
        rest = rest[1 + len(phrase) :]
        definite = True
    if "'s" in phrase:
        return _owned(phrase)
    noun_type = _noun_type(phrase)
    indefinite = phrase[:1] in (["a"], ["an"]) and not rest
    picked = definite or (not indefinite and _PICKS.search(" ".join(phrase)) is not None)
    attribute = noun_type in ("numeric", "description") and phrase[0] == "the"
    if noun_type and (picked or rest or attribute or phrase[0] in _OWNERS):
        return noun_type
    return "entity" if picked else DEFAULT


def _owned(phrase: list[str]) -> str:
    """Return the type of a phrase such as "Michael Jackson's birthday": that of the thing owned.

    If the thing is a name, the owner's type counts, or person if it is unknown: "my dog's name" is an entity.
    """
    *owners, thing = [part.split() for part in " ".join(phrase).split("'s")]
    if thing[-1:] in (["name"], ["names"], ["nickname"]):
        return _noun_type(owners[-1]) or "person"
    return _noun_type(thing) or "entity"


def _phrase(words: list[str], verbs: bool = True) -> list[str]:
    """Return the leading noun phrase, which ends before a preposition, an auxiliary verb, a pronoun or a new phrase.

    With `verbs` it also ends before a verb that follows a known noun; the words of a keyword query are no verbs.
    """
    noun = False
    for position, word in enumerate(words):
        if word in _BREAKS or (position and word in _STARTS) or (noun and verbs and _ends(word)):
            return words[:position]
        noun = noun or _noun_type([word]) is not None
    return words


def _ends(word: str) -> bool:
    """Return whether a word behind a known noun is a verb or joins the next phrase."""
    if word in _JOINS or word in _VERBS:
        return True
    return _VERB_ENDING.match(word) is not None and _noun_type([word]) is None


def _noun_type(words: Sequence[str]) -> str | None:
    """Return the type of the last word that is a noun of a known type, in the singular or the plural."""
    for word in reversed(words):
        for plural, singular in _PLURALS:
            noun = word.removesuffix(plural) + singular
            if word.endswith(plural) and noun in NOUNS:
                return NOUNS[noun]
        if _PERSON_ENDING.match(word):
            return "person"
    return None
