"""The log: appending, making durable, and the segments that it consists of."""
