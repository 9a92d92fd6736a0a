"""One lake table as the driver knows it: its columns, its index, its positions, what is under way."""
