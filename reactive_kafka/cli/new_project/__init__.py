"""``reactive-kafka init``: a new project that runs and tests itself. The files are in template/."""
