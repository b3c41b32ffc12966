"""The keys and values of `__consumer_offsets`, in Kafka's formats."""
