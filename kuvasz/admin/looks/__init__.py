"""Verbs that only look, asked by HTTP: what they are, and how they are answered."""
