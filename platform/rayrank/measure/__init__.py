"""Metrics, and how sure they are."""
