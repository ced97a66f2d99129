"""Sources of answers: scripts, providers and recordings."""
