"""The configuration as a JSON Schema, for editors and validators: made from the tables of keys."""
