"""``run --workers`` and ``--reload``: a parent process that starts the application in children."""
