"""From a lane to a handler: which record may run next, and the workers that run it."""
