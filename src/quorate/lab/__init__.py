"""Breaking things on purpose: a world with virtual time, network and disks, in which production nodes run."""
