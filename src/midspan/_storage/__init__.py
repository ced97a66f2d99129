"""What outlives a process: journals of runs, blind to what their events mean, and private files."""
