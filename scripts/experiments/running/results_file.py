"""The stored results of an experiment, results/NAME.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from filelock import FileLock

from ..data.rows import Row, write_text
from .settings import Settings


class ResultsFile:
    """The runs of all seeds, and facts about each seed's data. Several processes may write at once."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.path = settings.results_dir / f"{name}.json"
        self.seed = settings.seed
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(self.path.with_name(f".{name}.lock"))

    def read(self) -> dict[str, Any]:
        stored = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        return {"data": {}, "runs": [], **stored}

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
        with self.lock:
            results = self.read()
            others = [other for other in results["runs"] if {name: other[name] for name in key} != key]
            results["runs"] = sorted([*others, run], key=lambda each: each["seed"])
            self._write(results)

    def add_data_facts(self, **facts: Any) -> None:
        """Adds facts about this seed's data, such as `signature`, `examples` and `baselines`."""
        with self.lock:
            results = self.read()
            stored = results["data"].get(str(self.seed), {})
            results["data"] |= {str(self.seed): stored | facts}
            self._write(results)

    def _write(self, results: Mapping[str, Any]) -> None:
        write_text(self.path, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
