"""STRM's masks, and attention over padded and packed batches."""
