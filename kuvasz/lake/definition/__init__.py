"""What a lake table is: its columns, key and layout, and how it follows the columns of its sources."""
