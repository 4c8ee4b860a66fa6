"""Pure functions that return Polars expressions: identity, rewards, groups, advantages, metrics."""
