"""Formats whose schemas are in a registry: Avro, JSON Schema, and Protobuf."""
