"""The version of Midspan, defined only here."""

VERSION = "0.1.0"
