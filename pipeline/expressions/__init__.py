"""Pure functions that return Polars expressions: identity, rewards, groups, advantages, metrics. No input, no output."""
