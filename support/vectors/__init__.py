"""Word vectors: word2vec, GloVe, fastText, and what can be done with them."""
