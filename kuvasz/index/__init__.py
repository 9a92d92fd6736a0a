"""Where the rows of a table are: a local cache from key to data file and row position."""
