"""Writing to topics of a broker."""
