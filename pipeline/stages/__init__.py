"""The way from canonical samples to published tables, as lazy frames: samples, rollouts, groups, adapters, metrics."""
