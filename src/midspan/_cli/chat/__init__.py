"""`midspan chat`, piece by piece."""
