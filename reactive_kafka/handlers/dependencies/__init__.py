"""What a handler needs besides its record: declared, put in order, made and ended."""
