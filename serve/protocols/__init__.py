"""The dialects that clients speak, one file each."""
