"""The JSON Schema of the configuration, for editors and validators, made from the declared keys."""
