"""Parts that several jobs share."""
