"""From the bytes of an answer to a fetch to records."""
