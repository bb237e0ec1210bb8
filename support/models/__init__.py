"""The models: the Transformer, BERT, GPT, sequence to sequence, and weights from elsewhere."""
