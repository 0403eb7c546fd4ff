"""Python modules that a script needs and Debian packages bring."""

import importlib.util
import pathlib
import sys


def modules(*names):
    """Ends the script, saying what to install, if one is not there."""
    missing = [n for n in names if importlib.util.find_spec(n) is None]
    if missing:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: Python has no module "
                 f"{', '.join(missing)}: run scripts/packages train, and take "
                 "Debian's Python (/usr/bin/python3)")
