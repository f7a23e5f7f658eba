"""The commands, one module each; what several share stands beside this package."""
