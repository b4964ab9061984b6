"""The objects that lakelog's own commands print with ``--json``.

Names may be added; existing ones keep their meaning. Offsets are in bytes of the log unless their
description says otherwise, and times that end with ``_ms`` in milliseconds since 1970.
"""
