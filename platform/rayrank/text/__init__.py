"""Text: word pieces and words, sentences, terms, query types by rule, and the layout of model inputs."""
