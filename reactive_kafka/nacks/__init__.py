"""Carries out what failure strategies decide about nacked records, until each is settled or left.

The rules themselves, which are pure, are in ``failure/``.
"""
