"""What jobs are made of."""
