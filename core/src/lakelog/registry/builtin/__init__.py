"""The strategies of the core, selected through the registry like those of any plugin."""
