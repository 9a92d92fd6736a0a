"""What a running kuvasz tells of itself for a bug report: its state, what it does at the moment, what happened."""
