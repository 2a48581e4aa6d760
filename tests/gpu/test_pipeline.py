"""The stages from hits to tracks on a GPU: what they make on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.pipeline.options import Precision
from bigtrk.pipeline.stages import Passage, load_pipeline, tracks_of
from tests.distributed.pipelines import write_pipeline

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


def test_stages_make_what_they_make_on_the_cpu(tmp_path: Path) -> None:
    event = simulate_event(500, seed=3, event_id=0)
    write_pipeline(tmp_path, event)
    here, there = (
        load_pipeline(tmp_path, torch.device(device), Precision.FLOAT64)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(there.embedding(event), here.embedding(event), atol=1e-4)
    graph, _ = here.graph(event)
    torch.testing.assert_close(there.filter(graph), here.filter(graph), rtol=0, atol=1e-5)
    expected, found = (
        tracks_of(graph, one.classifier, one.builder, 3, Passage()) for one in (here, there)
    )
    assert expected.max() > 10
    np.testing.assert_array_equal(found, expected)
