"""The schema registry: asked until it answers, once for all who wait, and never on the record's hot
path.
"""
