"""The experiments, named as on the command line.

Each module has `MODEL_NAMES`, `CARD` (None if the models have no cards), `run(settings)`, which trains and scores the
models and returns the results file, and `render_page(results)`, which returns the text of results/NAME.md.
"""
