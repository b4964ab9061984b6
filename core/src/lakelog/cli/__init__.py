"""The command line, ``lakelog``: one file per command, and what they share.

Only :mod:`lakelog.cli.main` can be imported without typer and rich (``lakelog-core[cli]``).
"""
