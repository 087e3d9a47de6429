"""`python -m nanoinfer`: the command line without its script."""

import sys

from nanoinfer.cli import main

sys.exit(main())
