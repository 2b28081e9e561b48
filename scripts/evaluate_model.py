"""The same as `copynet-hf evaluate`. Not called evaluate.py, which would hide the package of that name."""

import sys

from copynet_hf.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
