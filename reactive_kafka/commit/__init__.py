"""When and how far a client commits: strategies, the engine that decides, the committing task."""
