"""Disk-space maintenance: strategies choose segments, and this package deletes them.

``segment_infos`` describes the segments, a cleaner chooses some, ``planning`` holds back those
still needed, ``removal`` deletes the rest, and ``rounds`` runs the rounds and checks the disks.
``wiring`` builds all of it for a process with the services, and the dry run for any other.
"""
