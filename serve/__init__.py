"""The online re-ranking application."""
