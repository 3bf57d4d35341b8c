"""Health, metrics and a status page over HTTP, served on the application's event loop."""
