"""Programs that keep the repository in order; the Makefile calls them."""
