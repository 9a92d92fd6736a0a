"""Rows of a source brought into a lake table whole: copied, copied again, or compared and repaired."""
