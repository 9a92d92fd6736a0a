"""What a running kuvasz does by the clock: cuts and comparisons on a schedule."""
