"""What the bytes mean: messages, record batches and error codes of the Kafka protocol. Pure."""
