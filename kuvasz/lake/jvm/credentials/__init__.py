"""Credentials that files and commands of the map have, for a catalog that is open."""
