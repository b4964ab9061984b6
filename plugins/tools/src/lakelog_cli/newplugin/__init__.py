"""Writes the package of a new plugin; the texts are in ``template``."""
