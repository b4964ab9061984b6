"""Bodies with schemas in a registry with Confluent's protocol: Avro and Protobuf.

A body begins with a zero byte and the id of its schema (4 bytes, big-endian), followed for Protocol
Buffers by the index path of its message in the schema. Columns are those of one reader schema,
which is looked up when landing begins.
"""
