"""Steps visit every event once an epoch, in an order that the seed and epoch alone decide."""

from bigtrk.training.steps import step_events


def test_every_event_exactly_once() -> None:
    steps = step_events(10, 4, seed=3, epoch=5)
    assert [len(step) for step in steps] == [4, 4, 2]
    assert sorted(event for step in steps for event in step) == list(range(10))


def test_order_follows_seed_and_epoch() -> None:
    assert step_events(50, 1, 0, 0) == step_events(50, 1, 0, 0)
    assert step_events(50, 1, 0, 0) != step_events(50, 1, 0, 1)
    assert step_events(50, 1, 0, 0) != step_events(50, 1, 1, 0)
