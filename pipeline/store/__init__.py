"""The ledger on disk: where results lie, how they are published, what is already known."""
