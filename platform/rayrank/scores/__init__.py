"""What becomes of scores: interpolation, calibration, the noise filter."""
