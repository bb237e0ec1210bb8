"""The command that pre-trains a GPT or a BERT on a text of one's own: python -m pretrain."""
