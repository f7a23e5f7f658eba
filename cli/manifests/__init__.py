"""From files to objects: YAML and JSON, with the place of every value."""
