"""One lake table as the driver knows it: its index, its positions, its commits, and what is under way."""
