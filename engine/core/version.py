"""The version of Lithify, which workers report as their build."""

VERSION = "0.1.0"
