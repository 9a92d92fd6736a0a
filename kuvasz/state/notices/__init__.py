"""How far those who are told of the lake have been told."""
