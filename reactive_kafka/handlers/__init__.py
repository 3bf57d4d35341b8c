"""What the user decorated: signatures, arguments, hooks, and which channel each function belongs
to.
"""
