"""The `tidelog` command: it begins in `entry`, and `main` has its verbs."""
