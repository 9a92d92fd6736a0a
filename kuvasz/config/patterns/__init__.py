"""Entries of a map whose name is a pattern: which tables they take in."""
