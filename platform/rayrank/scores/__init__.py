"""Transforms of scores: interpolation, calibration, the noise filter."""
