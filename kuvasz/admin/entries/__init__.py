"""What the map has, entry by entry, as kuvasz-streamer's users ask for it: /api/db, /url, /tbl and /map."""
