"""First stages: what gets a passage into the list that is re-ranked."""
