"""The version of Midspan, the one place where it stands."""

VERSION = "0.1.0"
