"""Random neglect of a source, its lake and kuvasz, and what has to be true all the same."""
