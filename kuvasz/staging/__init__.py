"""The staged log: what sources send, kept in the lake's store until the lake has it: no source waits for that."""
