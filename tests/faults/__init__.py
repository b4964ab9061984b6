"""Real faults: failing system calls, full disks, killed processes, cut power."""
