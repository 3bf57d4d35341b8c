"""``reactive-kafka demo``: a shop's consumers, traffic for them, a table to watch, and checks of
the outcome.
"""
