"""The data of the query type rules: an ordered table of question patterns, and the nouns of each type.

Derived from the TREC question classification training set; `query_types.py` applies them to a normalised question:
lower case, no quotes, no hyphens, commas and possessive `'s` as words of their own.
"""

import re
from typing import NamedTuple

# Nouns X of "what X ..." or "the X of ...", in the singular. As in TREC, groups, organisations, names, titles and jobs
# count as persons.
PERSON = """
    ace actor actress administration admiral adviser advisor advocate agency agent airline alias ambassador american
    announcer apostle architect army artist assassin association astronaut astronomer athlete attorney aunt author
    aviator band bandleader bank baron baseman bassist billionaire blonde boss boxer boy boyfriend brother brunette
    builder bureau business candidate captain cardinal cartoonist celebrity ceo chain chairman champion character
    chef chief child children choir choreographer church citizen civilization clown club coach college columnist
    comedian commander commentator committee company composer conductor conglomerate congresswoman conqueror
    contestant cook cop corporation cosmonaut council couple court cousin cowboy creator cricketer criminal critic
    crooner culture dancer daughter deity delegate department designer detective dictator diplomat director
    discoverer doctor driver drummer duke dummy dwarf dynasty economist editor emperor employer engineer entertainer
    evangelist executive expert explorer family fan father fellow feminist fighter figure filmmaker finder firm
    flyer fool founder franchise friend gang gangster general genie genius ghost giant girl girlfriend goalie
    goalkeeper god goddess golfer government governor granddaughter grandfather grandson group guitarist guru guy
    gymnast healer heir hero heroine historian hitter horseman horsemen host hostage humorist hunter husband
    identity indian industry inhabitant institute institution instructor inventor isp job jockey journalist judge
    justice kid killer king lady laureate lawyer leader league legislature lover lyricist magician magnate maker man
    manager manufacturer mapmaker martyr mathematician mayor member men militia minister missionary mistress mobster
    model monarch monk mother murderer musician naturalist neighbor nephew network nickname niece nominee novelist
    nun nurse occupation officer official orchestra organisation organization outlaw owner painter partner party
    pastor patriot people performer person persona personality pharaoh philosopher photographer physician physicist
    pianist pilot pirate pitcher player playwright poet police politician pope position preacher president priest
    prince princess prisoner producer profession professor prophet prosecutor pseudonym psychiatrist psychologist
    publisher puppet quarterback quartet queen racer railway ranger recipient referee regiment relative resident
    retailer revolutionary roommate ruler runner sailor saint scholar school scientist sculptor sculptress seafarer
    secretary senator sergeant sheriff sibling singer sister skater skier skipper slave society soldier soloist son
    songwriter sorority spokesman spouse spy star statesman station store studio suffragette superhero supplier
    surgeon surname suspect swimmer teacher team teenager thief title trader tribe trio troop troupe tsar tycoon
    umpire uncle union university veteran victim villain violinist widow wife winner witch wives wizard woman women
    worker wrestler writer youngster
"""
LOCATION = """
    address airport arch area attraction avenue basin battlefield bay beach birthplace body border borough boulevard
    brewery bridge building campus canal canyon cape capital castle cathedral cave cemetery center centre channel
    city coast colony constellation continent coordinates corner country county dam desert destination direction
    district empire estuary falls farm fort galaxy gallery gate gulf habitat hall hamlet harbor harbour headquarters
    hemisphere highway hill home homeland hometown hospital hotel house inlet island isle isthmus jungle kingdom
    lake landmark library location mall mansion metropolis monument mount mountain museum nation nationality
    neighborhood neighbourhood ocean page palace park peak peninsula place planet plantation plaza port prefecture
    prison province pyramid ranch region republic reservoir residence resort restaurant river road room route sea
    seaport setting settlement shore shrine site skyscraper spot square stadium state strait street suburb summit
    temple territory theater theatre tomb tower town township tunnel valley village volcano wall waterfall waterway
    website whereabouts wilderness world zone zoo
"""
NUMERIC = """
    acreage age altitude amount anniversary attendance average balance bandwidth birthdate birthday birthrate budget
    calorie capacity century chance chapter charge circumference code concentration consumption cost count date day
    deadline debt decade degree density depth diameter digit dimension distance dosage duration elevation equivalent
    era expectancy fare fee fine fraction frequency gdp height horsepower hour income increase interest iq latitude
    length lifespan limit longitude loss mass maximum membership mileage minimum minute month mortality number odds
    output par pay percent percentage period phone population pressure price probability profit proportion quantity
    radius range rank rate rating ratio revenue salary score season size span speed statistic sum tax temperature
    thickness time toll total turnover velocity voltage volume wage wavelength weekday weight width wingspan worth
    year zip
"""
ENTITY = """
    ability activity ailment album alcohol allergy alloy alphabet amendment amphibian animal antibiotic appliance
    approach art article automobile award bacteria ball ballad battle beast beer beverage bill bird bomb bone book
    bottle brand bread breakfast breed bug cancer candy canine car card cartoon cat category cell cereal ceremony
    cheese chemical cigarette class classic cloth clothing cocktail coin color colour comedy commercial commodity
    component compound computer condiment condition conflict cookie counterpart craft creature crime crop cuisine
    cult currency dance dessert device diet disaster discovery disease dish document dog drama dress drink drug
    earthquake element engine entree enzyme epic equipment event exercise explosive fabric fastener fear feature
    festival fiber film finger fish flag flavor flavour flower food form format formula fossil fruit fuel fungus
    furniture game garment garnish gas gem gender gift gland grain grape grass habit hat herb hit hobby holiday
    hormone horse hurricane hymn illness incident infection ingredient insect instrument invention item jewel
    jewelry language law layer letter liner liquid liquor machine magazine mammal maneuver mark mascot material meal
    meat medication medicine medium metal method mineral missile molecule money monster motorcycle movie muscle
    music musical narcotic newspaper noun novel nut object oil opera orca ore organ organism pain painting paper
    parasite pastry penalty pet phenomenon phobia piece plane plant play plural poem poison policy preservative
    primate prize product program programme project protein publication puzzle race rat recipe record religion
    reptile rocket rum sandwich satellite sauce scale science sculpture seed sequel series shape ship shipwreck shoe
    show shrub sign singular sitcom snake soap soda software song sound soundtrack soup species spice spider spirit
    sport statue stone storm story strip stroke structure style submarine substance suit supplement symbol symphony
    synonym system tale tea technique television tense term test therapy thing toe tool tornado tournament toy
    trademark tragedy translation treat treatment treaty tree trial trophy tune utensil vaccine vegetable vegetation
    vehicle verb vessel virus vitamin vowel war way weapon whale wheel wine wood word work
"""
DESCRIPTION = """
    achievement advantage appearance background basis belief benefit biography cause characteristic characterization
    clause complaint concept consequence definition description detail difference disadvantage distinction effect
    etymology excuse explanation expression fact function history idea impact importance influence information
    legend lyrics meaning mechanism moral motto nature origin overview philosophy phrase plot principle problem
    procedure process property prophecy purpose qualification quality quotation quote reaction reason requirement
    responsibility result revelation right role root rule saying significance similarity slogan step subject summary
    symptom synopsis theme theory trait tutorial usage use verdict weather
"""
ABBREVIATION = "abbreviation acronym initials initial"

NOUNS: dict[str, str] = {
    noun: query_type
    for query_type, nouns in (
        ("entity", ENTITY),
        ("person", PERSON),
        ("location", LOCATION),
        ("description", DESCRIPTION),
        ("numeric", NUMERIC),
        ("abbreviation", ABBREVIATION),
    )
    for noun in nouns.split()
}

_BE = r"(?:is|are|was|were)"
_DO = r"(?:do|does|did|can|could|should|would|will|must|has|have|had)"
_MEASURE = (
    r"how (?:many|much|long|old|far|tall|high|deep|big|large|wide|fast|often|heavy|hot|cold|late|early|thick|loud|small"
    r"|short|close|soon|frequently|strong|rich|expensive|bright|warm|likely|quickly|wealthy|accurate|near)\b"
)


class Rule(NamedTuple):
    """A pattern that determines the type by itself, and what such a question asks for."""

    query_type: str
    pattern: re.Pattern[str]
    asks_for: str


def _rule(query_type: str, pattern: str, asks_for: str) -> Rule:
    return Rule(query_type, re.compile(pattern), asks_for)


# The first pattern that matches decides, so specific patterns come before general ones.
RULES = (
    _rule("description", r"^why\b|, why\b|\bwhy$|^how come\b", "a reason"),
    _rule("abbreviation", r"\b(?:abbreviat\w+|acronym|initialism)\b", "an abbreviation, by that word"),
    _rule("abbreviation", r"\b(?:stand|stands|stood) for\b|^what do the (?:letters|initials)\b", "what letters mean"),
    _rule("description", r"^(?:define|describe|explain|definition|meaning)\b|\bdefin(?:e|ed|ition)$", "a definition"),
    _rule("person", r"^(?:(?:by|for|from|to|with|of) )?(?:who|whom|whose)\b", "a person, by the question word"),
    _rule(
        "person",
        r"\b(?:by|to|for|with) whom\b|\b(?:by|to|for|with) who$|, who\b(?! had| was)",
        "a person, by a question word at the end",
    ),
    _rule("numeric", r"^when\b(?!.*, (?:what|which|who)\b)|\bwhen$", "a date"),
    _rule("numeric", r"^where .*\brank", "a rank"),
    _rule(
        "description",
        r"^where .*\b(?:term|word|name|phrase|saying|expression|idea|custom|tradition|ceremony)\b.*\bcome from$",
        "the origin of a word or a custom",
    ),
    _rule("location", r"^where\b|^(?!what|which).*\bwhere$", "a place, by the question word"),
    _rule("entity", r"^how (?:do|would|can|does|to) (?:\w+ )?say\b", "a translation"),
    _rule("description", r"^how (?:do|does|did|can|could|should|would|will|to|is|are|was|were|has|have)\b", "a manner"),
    _rule("numeric", rf"^(?!what|which|name).*\b{_MEASURE}", "a measure"),
    _rule("description", r"^how\b|, how\b", "a manner"),
    _rule("person", rf"^what {_DO} .*\bdo for (?:a )?living$", "an occupation"),
    _rule("numeric", rf"^what {_DO} .*\b(?:cost|costs|weigh|equal|earn|get paid|pay)\b", "an amount"),
    _rule("description", rf"\bwhat {_DO} .*\b(?:mean|means|meant)\b", "a meaning"),
    _rule(
        "description",
        rf"\bwhat (?:exactly )?(?:, \w+ )?{_DO} .*\b(?:do|say|look like|sound like|feel like|believe|think|happen"
        r"|have in common|have to do)(?: (?:to|for|about|in|when|if|with|on|upon|every|that|through)\b.*)?$",
        "an activity, an appearance, an opinion",
    ),
    _rule(
        "description",
        r"^what (?:else )?(?:causes?|caused|makes?|made|happens|happened|would happen|led|prompted|prevents?)\b",
        "a cause or an outcome",
    ),
    _rule("description", rf"^what {_BE} .*\b(?:for|about|like)$|\bfor what(?: reason)?$", "a purpose or a likeness"),
    _rule(
        "description",
        rf"^what {_BE} (?:meant|different (?:about|between)|wrong|special|unusual|it like|being done)\b",
        "a description",
    ),
    _rule("description", rf"^what {_BE} (?:people|they|we) \w+ing\b", "an activity"),
    _rule("entity", r"^(?:what|which) (?:kind|type|sort) of .* team (?:is|are)\b", "a sport"),
    _rule(
        "entity",
        rf"^(?:what {_BE}|(?!what|which)).*\b(?:called|known as|nicknamed|referred to as)(?: what)?$",
        "a name for a thing",
    ),
    _rule("entity", rf"^what {_DO} .*\bcall\b", "a name for a thing"),
    _rule("entity", r"\b(?:made|composed|consists?|built|made up) (?:of|from|out of)(?: what)?$", "a material"),
    _rule("entity", rf"^what {_BE} .*(?<!locat)(?:ed|nd|wn|de|en) (?:with|in|into)$", "what something is done with"),
    _rule(
        "entity",
        rf"^what {_BE} (?:\w+ly )?(?:\w+[^\We]ed|kept|worn|found|sold|grown|given|eaten|made|known|lost) "
        r"(?:\w+ly )?(?:to|in|on|of|from|during|by|as|at|between|with)\b",
        "the thing that something is done to",
    ),
    _rule("entity", rf"^(?:what {_BE} (?:a |the )?)?fear of\b", "a phobia"),
    _rule("description", rf"^what {_BE} the words to\b", "a text"),
    _rule("entity", r"\b(?:name|term|word) (?:for|given to)\b", "a name for a thing"),
    _rule(
        "entity", r"\b(?:another|other|former|brand|chemical|scientific) (?:name|term|word)s?\b", "a name for a thing"
    ),
    _rule("entity", rf"^what {_BE} \w+ for ", "a translation"),
    _rule(
        "person",
        r"\b(?:first|last|middle|maiden|real|full|married|christian|second|given|stage|pen|family|original) names?\b",
        "the name of a person",
    ),
    _rule("location", r"\b(?:mountain|hill) (?:range|chain)s?\b", "a place of two words"),
    _rule("location", r"\b(?:e ?mail|web|mailing) (?:address|site|page)\b|\burl\b", "an address"),
    _rule("entity", r"\bpart of (?:the|your|a) (?:\w+ )?body\b", "a part of the body"),
    _rule("location", r"^(?:in |on |from )?(?:what|which) parts? of\b", "a region"),
    _rule("numeric", r"\b(?:melting|boiling|freezing) point\b|\bnet worth\b|\blife span\b", "a measure of two words"),
    _rule("description", r"^(?:is|are|was|were|do|does|did|can|could|should|will|has|have)\b", "yes or no, and why"),
    _rule(
        "description",
        r"^(?!what|which|name).*\b(?:definition|explained|described|meaning|symptoms|vs|versus)\b",
        "an explanation, in keywords",
    ),
)
