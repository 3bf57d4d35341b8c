"""Spark channels measured beside Spark by hand and Structured Streaming: ``make bench-spark``."""
