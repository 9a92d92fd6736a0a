"""Schema changes of source tables: what is remembered, what changed, and which column a message means. Pure."""
