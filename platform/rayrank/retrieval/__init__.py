"""First-stage retrieval: search in a Lucene index."""
