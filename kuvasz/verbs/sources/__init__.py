"""``kuvasz source``: the sources of a map, listed, added and dropped by whoever has hundreds of them."""
