"""The facts of a report, read from the artifacts that storage has; nothing is made."""
