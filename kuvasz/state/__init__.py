"""What is known while running: progress of each source, bytes in flight, state of each table. Thread-safe.

Only `notes` does input and output.
"""
