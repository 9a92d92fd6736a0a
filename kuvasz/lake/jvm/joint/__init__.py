"""Commits of several tables at once: written one by one, and shown in one step of the catalog."""
