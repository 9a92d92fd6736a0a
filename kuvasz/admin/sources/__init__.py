"""The sources of a map as those see them who have hundreds: chosen by patterns, listed, added and dropped."""
