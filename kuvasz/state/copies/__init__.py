"""What is finished of copies that are under way."""
