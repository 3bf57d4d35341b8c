"""Positions and states in a store of the user: a database, Redis, files, or a custom one."""
