"""Batches of records for Spark: ranges, columns, attempts, outcomes. It works without a session."""
