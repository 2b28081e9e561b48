"""The commands of `copynet-hf`, one file each: its arguments and the function that it runs."""
