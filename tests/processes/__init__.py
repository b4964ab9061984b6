"""Several processes on one store: producers, readers, services, and what goes wrong among them."""
