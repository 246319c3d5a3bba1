"""A generated corpus about invented things, made so that every part of DR-BERT can improve the ranking.

pools, phrases      words and sentences that fit any category
category            the definition of a category; `categories/` has one file for each
names, subject      names of the subjects; siblings have names that share their first word pieces
writing             the passages, queries and relevant pairs of one subject
source              all subjects as a `Source`
"""

from rayrank.data.sources.demo.source import MOST_UNLABELLED, VERSION, Demo

__all__ = ["MOST_UNLABELLED", "VERSION", "Demo"]
