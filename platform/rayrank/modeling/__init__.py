"""Encoders, their attention and their heads."""
