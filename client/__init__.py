"""A synchronous client of Kafka's protocol: one connection, a cluster of brokers, and functions over it."""
