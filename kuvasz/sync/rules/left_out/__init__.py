"""What of a source's tables stays there: columns that the map leaves out, and rows outside a filter. Pure."""
