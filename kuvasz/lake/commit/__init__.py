"""A mini-transaction of the stream on its way: cut into chunks, written, resolved, committed."""
