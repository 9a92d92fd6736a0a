"""Table types: what a chunk of raw changes or of copied rows becomes in the lake. Pure; runs on executors."""
