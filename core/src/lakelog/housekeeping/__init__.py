"""Disk-space maintenance: strategies decide what is deleted, and this package deletes it.

``infos`` describes the segments, a cleaner chooses some, ``planning`` holds back those still
needed, ``removal`` deletes the rest, and ``maintenance`` runs the rounds and checks the disks.
"""
