"""Datasets: their sources, checks of their rows, and joins of ids."""
