"""The experiments of `scripts/reproduce.py`, and how `scripts/publish.py` publishes their models.

    data/        makes or reads the pairs, one module per data set
    scores/      scores and baselines that `copynet_hf.evaluation` does not have
    running/     trains and scores models, and stores what they score
    reports/     turns stored results into pages, model cards and figures; their words are in ../templates/
    tables/      one module per experiment: its models, its data, the figures of its page
    publishing   finds a trained model, collects what is published of it, uploads it

A module imports from its own folder or from one further up in this list, except that running/ and reports/ do not
import from scores/, and publishing does not import from tables/.
"""
