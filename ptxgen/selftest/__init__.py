"""Everything that somebody with the hardware runs in one command, and one JSON that comes of it."""
