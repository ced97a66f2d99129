"""Tools in other processes, which can be killed with everything they started."""
