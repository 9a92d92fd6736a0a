"""The work beside the stream that keeps a table small and quick to read."""
