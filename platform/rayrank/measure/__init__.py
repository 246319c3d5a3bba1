"""Retrieval metrics, significance tests, and the agreement of two rankings."""
