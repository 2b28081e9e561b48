"""`python -m copynet_hf`: the console script, for launchers that take a module, such as torchrun."""

import sys

from copynet_hf_command import main

if __name__ == "__main__":
    sys.exit(main())
