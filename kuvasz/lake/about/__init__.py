"""Tables about the lake itself (`lake.about`): its commits, what happened, and how far each source is."""
