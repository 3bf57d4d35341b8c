"""When and how far a client commits: the strategies, the engine that decides, the committing task."""
