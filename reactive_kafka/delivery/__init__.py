"""Which record may run next, and the workers that run handlers on records."""
