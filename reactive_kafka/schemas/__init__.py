"""Asks the schema registry: until it answers, once for all who wait, and never for each record."""
