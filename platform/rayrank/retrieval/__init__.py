"""First-stage retrieval: BM25 in a Lucene index, and exact or approximate search of vectors."""
