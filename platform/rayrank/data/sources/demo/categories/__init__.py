"""The categories, in the order in which they are given to families of subjects."""

from rayrank.data.sources.demo.categories.chronicle import CHRONICLE
from rayrank.data.sources.demo.categories.crystal import CRYSTAL
from rayrank.data.sources.demo.categories.engine import ENGINE
from rayrank.data.sources.demo.categories.festival import FESTIVAL
from rayrank.data.sources.demo.categories.finch import FINCH
from rayrank.data.sources.demo.categories.guild import GUILD
from rayrank.data.sources.demo.categories.harp import HARP
from rayrank.data.sources.demo.categories.lighthouse import LIGHTHOUSE
from rayrank.data.sources.demo.categories.orchid import ORCHID
from rayrank.data.sources.demo.categories.river import RIVER

CATEGORIES = (LIGHTHOUSE, RIVER, FESTIVAL, ENGINE, HARP, CRYSTAL, ORCHID, FINCH, CHRONICLE, GUILD)
