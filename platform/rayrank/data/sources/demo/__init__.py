"""A corpus of invented things, generated so that every part of DR-BERT has something to win.

pools, phrases      words and sentences that fit anywhere
category            what a category is made of; `categories/` has one file for each
names, subject      who is who: sibling names that share their first word pieces
writing             one subject's passages, queries and truths
source              all of them as a `Source`
"""

from rayrank.data.sources.demo.source import MOST_UNLABELLED, VERSION, Demo

__all__ = ["MOST_UNLABELLED", "VERSION", "Demo"]
