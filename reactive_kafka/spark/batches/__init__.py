"""Batches of records for Spark: ranges, columns, attempts, outcomes. Nothing here starts a
session.
"""
