"""The HTTP API: one table of its routes, what is said of them, and what each of them does."""
