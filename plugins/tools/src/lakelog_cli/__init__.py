"""The command line, ``lakelog``: one file per command, and shared modules.

Only :mod:`lakelog_cli.main` can be imported without typer and rich.
"""
