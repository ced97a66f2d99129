"""The version of Wasat, the one place where it stands."""

VERSION = "0.1.0"
