"""What a team brings: sources, their checks, and joins of ids."""
