"""The work of a channel whose handler is a Spark function."""
