"""Whoever controls one source may stop that source and nothing else, and learns or changes nothing of another's."""
