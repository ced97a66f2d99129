"""Tools as they are declared, read for what they say of themselves."""
