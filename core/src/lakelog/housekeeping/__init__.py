"""Keeps a store's disk space in bounds: strategies decide, this acts.

``infos`` says what there is, a cleaner what may go, ``planning`` what of that is held back,
``removal`` deletes it, and ``maintenance`` does so by the clock and watches the disks.
"""
