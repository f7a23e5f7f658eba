"""``python -m webhook`` is ``usher``."""

from cli.main import main

if __name__ == "__main__":
    main()
