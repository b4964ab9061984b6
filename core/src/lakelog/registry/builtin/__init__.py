"""The strategies that come with the core; chosen and made through the registry like any other."""
