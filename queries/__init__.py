"""The SQL of the project: one file a view or audit."""
