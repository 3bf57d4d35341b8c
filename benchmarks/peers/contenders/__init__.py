"""What runs in a process of its own: a peer each, with a handler that is measured, or one that
writes a journal.
"""
