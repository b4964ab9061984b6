"""Which client may do what: users, signatures of requests, and the listening socket's TLS."""
