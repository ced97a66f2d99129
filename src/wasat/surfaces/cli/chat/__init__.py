"""`wasat chat`, piece by piece."""
