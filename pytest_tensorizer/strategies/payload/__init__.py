"""What clients send as prompt embeddings: the files, what can be wrong with them, and what has to become of each."""
