"""The vocabulary, the settings, storage and progress; every other room stands on these."""
