"""One run of an application: from its start to its end, and what it runs on."""
