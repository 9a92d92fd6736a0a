"""What only decides about a source and its tables. Pure."""
