"""Positions and states in a store of the user's own: SQLite, PostgreSQL, Redis, a folder of files,
or a custom one.
"""
