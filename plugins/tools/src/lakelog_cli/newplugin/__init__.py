"""The texts of a new plugin's package, in ``template``."""
