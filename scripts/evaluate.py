"""The same as `copynet-hf evaluate`."""

import sys

from copynet_hf.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
