"""What another process stages, followed."""
