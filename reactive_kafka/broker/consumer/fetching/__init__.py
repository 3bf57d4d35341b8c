"""Fetches records for the partitions that a consumer owns."""
