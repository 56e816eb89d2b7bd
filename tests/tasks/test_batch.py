import pytest
import torch

import cavia

x, y = torch.zeros(4, 10, 1), torch.zeros(4, 10, 1)


@pytest.mark.parametrize(
    ("arguments", "shapes"),
    [
        ((x, y[:, :9], x, y), ("[4, 10, 1]", "[4, 9, 1]")),
        ((x, y, x, y[:3]), ("[4, 10, 1]", "[3, 10, 1]")),
        ((x, y, x[:3], y[:3]), ("[4, 10, 1]", "[3, 10, 1]")),
        ((torch.zeros(4), torch.zeros(4), x, y), ("[4]", "[4]")),
        ((x, y, x, y, torch.ones(4, 9, dtype=torch.bool)), ("[4, 10]", "[4, 9]")),
    ],
)
def test_shapes_that_do_not_match_are_both_named(arguments, shapes):
    with pytest.raises(cavia.CaviaError) as caught:
        cavia.TaskBatch(*arguments)
    assert all(shape in str(caught.value) for shape in shapes)


def test_split_keeps_order_and_everything_else():
    batch = cavia.Sine().sample(7, 3, 5, torch.Generator().manual_seed(0))
    parts = list(batch.split(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    assert torch.equal(torch.cat([part.query_y for part in parts]), batch.query_y)
    assert torch.equal(torch.cat([part.attributes["phase"] for part in parts]), batch.attributes["phase"])


def test_a_batch_moves_whole_and_only_if_it_is_elsewhere():
    batch = cavia.Sine().sample(3, 4, 5, torch.Generator().manual_seed(0))
    assert batch.to("cpu") is batch
    moved = batch.to("meta")
    assert {moved.support_x.device.type, moved.query_y.device.type, moved.attributes["phase"].device.type} == {"meta"}
    partly = cavia.TaskBatch(
        batch.support_x, batch.support_y, batch.query_x, batch.query_y, attributes=moved.attributes
    )
    assert partly.to("meta").support_x.device.type == "meta"
