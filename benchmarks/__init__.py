"""Claims about speed, measured: each module is a script of its own, `benchmarks.suite` is all of them."""
