"""What comparisons of sources and lake have found: the last verdict on each table, and who keeps them."""
