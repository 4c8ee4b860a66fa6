"""Snapshots of a ledger: what it was, what it is, what differs."""
