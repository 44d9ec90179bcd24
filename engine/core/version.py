"""The version of Lithify; workers report it as their build."""

VERSION = "0.1.0"
