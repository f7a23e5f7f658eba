"""Things to try Usher with."""
