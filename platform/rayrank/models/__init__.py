"""Encoders, their attention, their heads, and how they score."""
