"""Mapped pages by which the processes of one store see how far it has come."""
