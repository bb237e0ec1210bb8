"""Text to numbers: vocabularies, byte pair encoding, WordPiece."""
