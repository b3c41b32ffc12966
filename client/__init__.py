"""A synchronous client of Kafka's protocol: a connection, a cluster of brokers, and functions over a cluster."""
