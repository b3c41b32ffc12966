"""What the coordinator of groups writes down, in Kafka's formats: the keys and values of `__consumer_offsets`."""
