"""Bodies whose schemas are in a registry that speaks Confluent's protocol: Avro and Protobuf.

A body begins with a zero byte and, in 4 bytes, the id of the schema it was written by; of Protocol
Buffers the place of the message in its file follows. Columns are those of one schema, the reader's,
which is looked up when landing begins.
"""
