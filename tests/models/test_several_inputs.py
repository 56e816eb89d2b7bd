"""Networks of several inputs, such as a transformer that is told where its texts end, from `condition` to `fit`."""

import threading
from collections import OrderedDict, UserDict

import pytest
import torch
from torch import nn

import cavia
from cavia.training.step import MetaStep

WORDS, LONGEST = 20, 6


class Texts(nn.Module):
    """In the manner of Hugging Face's models: an attention mask with 1 where a text has words."""

    def __init__(self, outputs=3):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.place = nn.Embedding(LONGEST, 8)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.classifier = nn.Linear(8, outputs)

    def forward(self, input_ids=None, attention_mask=None, return_dict=True):
        h = self.embed(input_ids) + self.place.weight[: input_ids.shape[1]]
        ignored = None if attention_mask is None else attention_mask == 0
        for layer in self.encoder:
            h = layer(h, src_key_padding_mask=ignored)
        logits = self.classifier(h[:, 0])
        return OrderedDict(logits=logits) if return_dict else (logits,)


def texts(*leading, seed=0):
    """Texts of 2 to 6 words; behind their end is anything."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, LONGEST + 1, leading, generator=generator)
    return {
        "input_ids": torch.randint(WORDS, (*leading, LONGEST), generator=generator),
        "attention_mask": (torch.arange(LONGEST) < lengths.unsqueeze(-1)).long(),
    }


def labels(x):
    """The class of a text is its first word's."""
    return x["input_ids"][..., 0] % 3


def batch_of(tasks=4, support=5, query=3):
    x, q = texts(tasks, support), texts(tasks, query, seed=1)
    return cavia.TaskBatch(x, labels(x), q, labels(q))


def make(kind=cavia.CAVIA, **arguments):
    torch.manual_seed(0)
    model = cavia.condition(Texts(), at="encoder.*", context=4, example=texts(3), output="logits", **arguments)
    return kind(model, "cross_entropy", inner_lr=0.1) if kind is not cavia.ProtoNets else kind(model, ways=3)


KINDS = [cavia.CAVIA, cavia.MAML, cavia.Reptile, cavia.ProtoNets]


@pytest.mark.parametrize("kind", KINDS)
def test_padding_inside_a_text_is_not_attended_to(kind):
    learner, batch = make(kind).eval(), batch_of()
    expected = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))

    def with_other_padding(x):
        return {**x, "input_ids": x["input_ids"].where(x["attention_mask"] == 1, 7)}

    adapted = learner.adapt(with_other_padding(batch.support_x), batch.support_y)
    predicted = learner.predict(with_other_padding(batch.query_x), adapted)
    torch.testing.assert_close(predicted, expected)
    words = {**batch.query_x, "attention_mask": torch.ones_like(batch.query_x["attention_mask"])}
    assert not torch.allclose(learner.predict(words, adapted), expected)


def test_a_mask_that_the_example_had_is_missed():
    learner, batch = make(), batch_of()
    alone = {"input_ids": batch.support_x["input_ids"]}
    names = "x has the names 'input_ids', but the example has the names 'attention_mask', 'input_ids'; give the same"
    with pytest.raises(cavia.CaviaError, match=names):
        learner.adapt(alone, batch.support_y)
    with pytest.raises(cavia.CaviaError, match="x is one tensor, but the example has the names"):
        learner.adapt(alone["input_ids"], batch.support_y)


def test_the_names_of_the_example_are_saved(tmp_path):
    learner, batch = make(), batch_of()
    learner.save(tmp_path / "texts.cavia")
    again = cavia.load(tmp_path / "texts.cavia", module=Texts())
    with pytest.raises(cavia.CaviaError, match="x has the names 'input_ids'"):
        again.adapt({"input_ids": batch.support_x["input_ids"]}, batch.support_y)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_learners_around_it_keep_their_promises(kind):
    cavia.check_learner(make(kind), batch_of())


def test_the_network_keeps_its_promises():
    cavia.check_model(make().model, texts(3, 4))


def test_padded_points_do_not_count_even_if_a_task_has_none():
    learner, batch = make(), batch_of()
    mask = torch.tensor([[True] * 5, [True, False, True, True, False], [False] * 5, [True] + [False] * 4])
    x = {name: value.where(mask.unsqueeze(-1), 0) for name, value in batch.support_x.items()}  # no word to attend to
    adapted = learner.adapt(x, batch.support_y, mask)
    assert adapted.finite.all()
    assert not adapted.context[2].any()
    kept = {name: value[1:2, [0, 2, 3]] for name, value in batch.support_x.items()}
    alone = learner.adapt(kept, batch.support_y[1:2, [0, 2, 3]])
    torch.testing.assert_close(adapted.context[1:2], alone.context)
    masked = cavia.TaskBatch(x, batch.support_y, batch.query_x, batch.query_y, mask)
    learner(masked).mean().backward()
    assert all(p.grad.isfinite().all() for p in learner.parameters() if p.grad is not None)


class Corpus(cavia.TaskFamily):
    """Which class is which differs from task to task."""

    def sample(self, tasks, support, query, generator, split="train"):
        seed = int(torch.randint(10**6, (), generator=generator))
        x, q = texts(tasks, support, seed=seed), texts(tasks, query, seed=seed + 1)
        shift = torch.randint(3, (tasks, 1), generator=generator)
        return cavia.TaskBatch(x, (labels(x) + shift) % 3, q, (labels(q) + shift) % 3, attributes={"shift": shift})


@pytest.mark.slow
def test_it_is_trained_evaluated_saved_and_loaded(tmp_path):
    cavia.check_tasks(Corpus())
    learner = make()
    cavia.fit(learner, Corpus(), 3, tasks_per_batch=4, validation=cavia.Validation(tasks=4, every=2), progress=False)
    result = cavia.evaluate(learner, Corpus(), tasks=6, support=5, query=4, chunk=4)
    assert result.metric == "accuracy"
    learner.save(tmp_path / "texts.cavia")
    again, batch = cavia.load(tmp_path / "texts.cavia", module=Texts()), batch_of()
    expected = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
    adapted = again.predict(batch.query_x, again.adapt(batch.support_x, batch.support_y))
    assert torch.equal(adapted, expected)
    chunked, whole = (MetaStep(make(), lr=0.01, chunk=chunk) for chunk in (3, None))
    torch.testing.assert_close(chunked(batch), whole(batch))


def test_threads_do_not_meet():
    learner, batches = make().eval(), [batch_of(), batch_of(2, 4, 3)]
    expected = [learner.adapt(batch.support_x, batch.support_y).context for batch in batches]
    wrong = []

    def serve(number):
        batch = batches[number]
        for _ in range(5):
            if not torch.allclose(learner.adapt(batch.support_x, batch.support_y).context, expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=serve, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.slow
def test_a_compiled_step_is_the_eager_one(compiler):
    losses = []
    for compiled in (False, True):
        step = MetaStep(make(), lr=0.01, compiled=compiled)
        losses.append([step(batch_of()).item() for _ in range(2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_compiled_learner_takes_them_as_the_learner_does():
    learner, batch = make(), batch_of()
    with pytest.warns(UserWarning, match="runs uncompiled"):
        service = cavia.compiled(learner)
    expected = learner.adapt(batch.support_x, batch.support_y)
    assert torch.equal(service.adapt(batch.support_x, batch.support_y).context, expected.context)


def test_batches_are_checked_moved_and_cut():
    batch = batch_of()
    assert len(batch) == 4
    assert [len(part) for part in batch.split(3)] == [3, 1]
    assert batch.part(1, 3).support_x["input_ids"].shape == (2, 5, LONGEST)
    assert batch.to("cpu") is batch
    assert batch.fault() is None
    x = {"values": torch.zeros(2, 3, 1), "times": torch.zeros(2, 3)}
    x["times"][1, 2] = torch.nan
    floats = cavia.TaskBatch(x, torch.zeros(2, 3, 1), x, torch.zeros(2, 3, 1))
    assert floats.fault() == "support_x['times'] of task 1, point 2 of the batch is nan: fix the data"
    with pytest.raises(cavia.CaviaError, match="need the same two leading axes"):
        cavia.TaskBatch({**x, "times": torch.zeros(2, 4)}, torch.zeros(2, 3, 1), x, torch.zeros(2, 3, 1))


class Encoding(UserDict):
    """As tokenizers return it."""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(argument="input_ids"), "argument='input_ids' is for an x of one tensor: leave it out"),
        (lambda: make(keywords={"attention_mask": torch.ones(3, 6)}), r"'attention_mask' is a tensor \[3, 6\]"),
        (lambda: cavia.condition(Texts(), "encoder.*", 4, example={}), "a dictionary with at least one, got {}"),
        (
            lambda: cavia.condition(Texts(), "encoder.*", 4, example={"input_ids": torch.zeros(0, 6).long()}),
            r"with N at least 1, .* got {input_ids: \[0, 6\]}",
        ),
        (lambda: make().adapt({}, torch.zeros(4, 5).long()), "x must be a tensor, or name → tensor, at least one"),
        (lambda: make().adapt({**texts(4, 5), "words": 3}, torch.zeros(4, 5).long()), r"x\['words'\] must be"),
        (
            lambda: make().adapt(texts(4, 5) | {"other": torch.zeros(4, 5)}, torch.zeros(4, 5).long()),
            "'other', but the example",
        ),
        (lambda: cavia.CAVIA(cavia.MLP(1, 1), "mse").adapt(texts(4, 5), torch.zeros(4, 5, 1)), "takes one tensor x"),
    ],
)
def test_misuse_is_named(call, message):
    with pytest.raises(cavia.CaviaError, match=message):
        call()


def test_what_tokenizers_return_is_a_dictionary_too():
    learner, batch = make(), batch_of()
    expected = learner.adapt(batch.support_x, batch.support_y)
    assert torch.equal(learner.adapt(Encoding(batch.support_x), batch.support_y).context, expected.context)


def test_texts_without_their_mask_are_warned_of():
    with pytest.warns(UserWarning, match="padding in input_ids would be attended to"):
        cavia.condition(Texts(), "encoder.*", 4, example=texts(3)["input_ids"], argument="input_ids", output="logits")
