"""Batches of records on Spark. It is imported only if a channel has a Spark function."""
