"""OpenTelemetry spans of handlers' calls and of sends, and their contexts in headers."""
