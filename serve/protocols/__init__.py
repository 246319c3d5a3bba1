"""The HTTP APIs of other rerank servers, one file each, and our own routes."""
