"""Spans, by the SDK's own exporter."""
