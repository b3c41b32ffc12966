"""The `tidelog` command."""
