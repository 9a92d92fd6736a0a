"""What is seen of the lake by those who only look."""
