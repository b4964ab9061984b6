"""Several processes that write to one store: joining, taking over services, requests."""
