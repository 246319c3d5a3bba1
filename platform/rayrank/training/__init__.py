"""One loop for every phase."""
