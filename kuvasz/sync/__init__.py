"""One source from nothing to streaming: pre-flight, publication, slot, copies, reader."""
