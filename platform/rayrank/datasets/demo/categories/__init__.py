"""The categories, in the order in which families of subjects take turns."""

from rayrank.datasets.demo.categories.chronicle import CHRONICLE
from rayrank.datasets.demo.categories.crystal import CRYSTAL
from rayrank.datasets.demo.categories.engine import ENGINE
from rayrank.datasets.demo.categories.festival import FESTIVAL
from rayrank.datasets.demo.categories.finch import FINCH
from rayrank.datasets.demo.categories.guild import GUILD
from rayrank.datasets.demo.categories.harp import HARP
from rayrank.datasets.demo.categories.lighthouse import LIGHTHOUSE
from rayrank.datasets.demo.categories.orchid import ORCHID
from rayrank.datasets.demo.categories.river import RIVER

CATEGORIES = (LIGHTHOUSE, RIVER, FESTIVAL, ENGINE, HARP, CRYSTAL, ORCHID, FINCH, CHRONICLE, GUILD)
