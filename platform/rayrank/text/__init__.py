"""Text as word pieces."""
