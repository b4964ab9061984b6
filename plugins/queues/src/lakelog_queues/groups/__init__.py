"""Consumer groups whose members share queues; core/docs/consumers.md describes them."""
