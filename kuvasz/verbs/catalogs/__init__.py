"""Catalogs as verbs open them, without Spark: all of them by PyIceberg, and the catalog of a folder without it."""
