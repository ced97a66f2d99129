"""SQLite, behind the door that is `sqlite.py`: opening a file, its statements, the threads that run them."""
