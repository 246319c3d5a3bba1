"""The re-ranking endpoint."""
