"""Records, settings, storage and progress; every other package builds on these."""
