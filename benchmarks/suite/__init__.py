"""The benchmarks as one command: contestants side by side, one table, and a failure where their results differ."""
