"""Health, metrics and a page over HTTP, served in the application's own loop."""
