"""The command line as ``python -m lakelog``, for where no ``lakelog`` stands on the PATH."""

from lakelog.cli.main import run

if __name__ == "__main__":
    run()
