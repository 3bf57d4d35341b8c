"""Batches of records on Spark: columns, job, outcome. Nothing here is imported unless a channel
asks for it.
"""
