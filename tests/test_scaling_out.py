"""A predictor inside Ray Data, with two workers, gives the rows of a loop over `generate()`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import loop_over_generate, save_tiny_model

from copynet_hf import CopyNetPredictor

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local Ray whose workers find the package; the two that predict take a CPU each, reading takes others."""
    root = Path(__file__).parents[1]
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), str(root / "tests")]))
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def test_ray_maps_a_predictor(cluster: None, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, seed=4)
    texts = [f"a b X{number} {'c ' * (number % 4)}Y" for number in range(40)]
    options: dict[str, Any] = {"num_beams": 2, "max_new_tokens": 5, "forbid_unk": True}
    outputs = loop_over_generate(tmp_path, texts, **options)
    expected = {
        number: {"id": number, "text": text, "prediction": output, "prediction_is_truncated": False}
        for number, (text, output) in enumerate(zip(texts, outputs, strict=True))
    }
    data = ray.data.from_items([{"id": number, "text": text} for number, text in enumerate(texts)])
    mapped = data.repartition(4).map_batches(
        CopyNetPredictor,
        fn_constructor_args=[str(tmp_path)],
        fn_constructor_kwargs=options,
        batch_size=10,
        concurrency=2,
    )
    assert {row["id"]: row for row in mapped.take_all()} == expected
