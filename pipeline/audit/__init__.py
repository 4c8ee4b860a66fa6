"""Questions to a published ledger, in SQL, read-only."""
