"""Consumer groups whose members share queues; core/docs/guides/consumers.md describes them."""
