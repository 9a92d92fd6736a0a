"""Sealing: rows that are kept for a while where a disk or a store has them, unreadable to who lacks the key.

In: bytes, and what they belong to. Out: the same bytes once more, or an error: nothing that was altered is read.
"""
