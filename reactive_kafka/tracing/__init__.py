"""OpenTelemetry spans of handler calls and sends, and their contexts in the headers of records."""
