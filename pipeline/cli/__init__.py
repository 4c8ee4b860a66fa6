"""The command: one module a verb. Nothing else prints."""
