"""Batches of records on Spark. An application imports this only if a channel has a Spark function."""
