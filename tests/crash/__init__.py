"""The crash simulator over lakelog's own strategies."""
