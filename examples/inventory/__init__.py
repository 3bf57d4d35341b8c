"""A host inventory: a row for each host, and an event for each change. See README.md."""
