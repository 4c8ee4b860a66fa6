"""Who else could do the same work: each of these modules is a process of its own."""
