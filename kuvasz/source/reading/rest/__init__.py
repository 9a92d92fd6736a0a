"""Sources that bring little: how long their sockets are left alone, and the looks at all of them together."""
