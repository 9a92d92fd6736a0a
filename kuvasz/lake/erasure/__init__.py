"""Rows taken out of a table for good: out of its files, its snapshots, its metadata, and whatever else lies there."""
