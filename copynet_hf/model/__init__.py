"""The model: exactly the files that `save_pretrained` puts beside the weights."""
