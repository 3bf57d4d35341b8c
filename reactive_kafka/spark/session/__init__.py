"""Spark sessions: opened, watched, replaced; and the jobs that run in them."""
