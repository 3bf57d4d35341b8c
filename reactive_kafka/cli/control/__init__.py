"""``reactive-kafka control``: acts on a running service over HTTP."""
