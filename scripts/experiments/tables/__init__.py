"""The experiments, named as on the command line.

Each module has `MODEL_NAMES`, `run(settings)`, which trains and scores the models and returns the results file, and
`collect_figures(results)`, which returns what scripts/templates/NAME.md.jinja needs.
"""
