"""The results of an experiment, results/NAME.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..data.rows import Row, change_json
from .settings import Settings


class ResultsFile:
    """The runs of all seeds, and facts about each seed's data. Several processes may write at once."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.path = settings.results_dir / f"{name}.json"
        self.seed = settings.seed

    def read(self) -> dict[str, Any]:
        return {"data": {}, "runs": [], **json.loads(self.path.read_text(encoding="utf-8"))}

    def add_run(
        self,
        data: str,
        model: str,
        scores: Mapping[str, Any],
        training_record: Mapping[str, Any],
        outputs: Sequence[Row] = (),
    ) -> None:
        """Adds a run, or replaces the run of the same data set, model and seed."""
        key = {"data": data, "model": model, "seed": self.seed}
        run = key | {"scores": dict(scores), **training_record} | ({"outputs": list(outputs)} if outputs else {})
        with change_json(self.path, {"data": {}}) as results:
            others = [other for other in results.get("runs", ()) if {name: other[name] for name in key} != key]
            results["runs"] = sorted([*others, run], key=lambda each: each["seed"])

    def add_data_facts(self, **facts: Any) -> None:
        """Adds facts about this seed's data, such as `signature`, `examples` and `baselines`."""
        with change_json(self.path, {"data": {}}) as results:
            results["data"][str(self.seed)] = results["data"].get(str(self.seed), {}) | facts
