"""Schemas with more ways through their references than anybody could go."""

from __future__ import annotations

from reactive_kafka.formats.registered.schema_questions import Reference, Schema

HEIGHT = 40


def tree(height: int) -> Schema:
    """A schema that refers to two others, which both refer to two others, and so on."""
    references: tuple[Reference, ...] = ()
    for level in range(height):
        references = tuple(
            Reference(f"{side}{level}", f"{side}{level}", 0, Schema("JSON", side, references))
            for side in "ab"
        )
    return Schema("JSON", "top", references)
