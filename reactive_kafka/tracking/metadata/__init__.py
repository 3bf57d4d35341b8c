"""The string stored with a position: plans, the user's string, kept acks. No I/O, no clock."""
