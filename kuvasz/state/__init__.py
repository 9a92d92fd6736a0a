"""What is known while running: progress of each source, bytes in flight, state of each table. Thread-safe, no I/O."""
