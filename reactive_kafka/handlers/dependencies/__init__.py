"""What a handler has beside its record: declared, put in order, made and ended."""
