"""A channel whose handler is a Spark function."""
