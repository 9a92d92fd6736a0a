"""What all parts of one source's life work with."""
