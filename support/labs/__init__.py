"""The self-checks: each takes an answer, and says what is wrong with it."""
