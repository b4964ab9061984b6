"""Mapped pages through which the processes of one store share its positions."""
