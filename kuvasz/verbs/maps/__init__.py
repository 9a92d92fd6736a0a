"""Verbs for whoever has no map yet: what databases have, and a map of one."""
