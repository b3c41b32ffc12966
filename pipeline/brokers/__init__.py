"""Reading a log from a broker, over the Kafka protocol."""
