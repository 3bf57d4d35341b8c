"""The pictures of the documentation, each drawn by a function: ``make docs-pictures``."""
