"""Channels between handlers of one process: objects instead of records, and no broker."""
