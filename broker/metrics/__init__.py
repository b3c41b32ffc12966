"""Figures about the broker for Prometheus, and whether it is well: read when they are asked for."""
