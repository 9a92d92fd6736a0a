"""Who applies which groups of the map, where several processes apply."""
