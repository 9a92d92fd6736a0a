"""A whole lake in memory: the same decoding, folding and rules as the one of production, without Spark and files."""
