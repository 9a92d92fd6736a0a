"""From a gulp of the stream to deliveries: split, group by relation, keep transactions whole. Pure."""
