"""The numbers by which the management API calls the map's entries, and the file that has them."""
