"""The same as `copynet-hf train`."""

import sys

from copynet_hf.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
