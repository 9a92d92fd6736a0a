"""Take CopyData payloads from libpq into one buffer: the reader's only work per message."""
