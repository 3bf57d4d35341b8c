"""The pictures and tables of docs/performance.md: what is measured for them, and how they are
drawn.
"""
