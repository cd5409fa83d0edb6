"""``python -m llmexp``."""

import sys

from llmexp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
