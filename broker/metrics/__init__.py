"""Metrics for Prometheus and the health of the broker, read on request."""
