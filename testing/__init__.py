"""A broker in your tests: `Broker`, a pytest plugin, a clock in your hand and faults on demand."""
