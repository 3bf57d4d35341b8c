"""Dead letters after they were written: what they say, and how they are sent back."""
