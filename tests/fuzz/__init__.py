"""Whatever may come from outside, drawn by seeds: only documented errors come of it, soon, and each
on one line.
"""
