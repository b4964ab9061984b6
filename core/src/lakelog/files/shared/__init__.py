"""Locks and tables that the processes of one store share."""
