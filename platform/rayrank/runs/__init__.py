"""Kinds of runs, one file each: first stages that search, rankers that score, combiners that join scores."""
