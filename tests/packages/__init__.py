"""The distributions as users install them, each in an environment of its own."""
