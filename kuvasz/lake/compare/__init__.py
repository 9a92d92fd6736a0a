"""A lake table compared with its source on executors, in bounded memory."""
