"""The same as `copynet-hf generate`."""

import sys

from copynet_hf.cli import main

if __name__ == "__main__":
    sys.exit(main(["generate", *sys.argv[1:]]))
