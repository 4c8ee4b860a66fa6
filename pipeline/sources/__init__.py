"""Sources: dumps of any format become the same canonical samples. One module a format."""
