"""The string beside a committed position: plans, the user's string, kept acks. No I/O, no clock."""
