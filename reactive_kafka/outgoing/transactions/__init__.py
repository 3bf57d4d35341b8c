"""Records and positions that are committed together, or not at all."""
