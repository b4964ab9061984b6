"""Messages to tables: by Spark and by plain processes, from a store and from a Kafka broker."""
