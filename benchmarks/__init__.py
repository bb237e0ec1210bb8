"""Side-by-side measurements: ours against the libraries that readers would use otherwise."""
