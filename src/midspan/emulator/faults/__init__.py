"""What goes wrong on demand: planned, repeatable, and reduced to the least that still shows a failure."""
