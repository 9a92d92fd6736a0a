"""Keys of rows, and the fold of a chunk to the last operation of each key. Pure: it runs on executors."""
