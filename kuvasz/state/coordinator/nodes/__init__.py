"""The processes of a cluster: who they are, when they were heard of, and what each of them does."""
