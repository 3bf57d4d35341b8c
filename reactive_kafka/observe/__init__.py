"""Events and facts of an application as values, and what they become: health, metrics and log
lines.
"""
