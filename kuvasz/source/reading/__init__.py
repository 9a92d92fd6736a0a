"""The stream of one slot as it is read: connection, gulps, and what the server is told."""
