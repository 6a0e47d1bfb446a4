"""JSON Schema, draft 2020-12: the texts that a schema allows, as a grammar."""
