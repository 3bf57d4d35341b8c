"""Measurements of the package, beside its peers and in parts. ``make bench`` runs them."""
