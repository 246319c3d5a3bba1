"""Hyperparameter sweeps over the dotted keys of the configuration."""
