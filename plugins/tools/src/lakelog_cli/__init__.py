"""The command line, ``lakelog``: one file per command, and what they share.

Only :mod:`lakelog_cli.main` can be imported without typer and rich.
"""
