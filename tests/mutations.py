"""Values that nobody wrote, in JSON and in tensors, for files whose checksums fit them."""

import copy
import json

import torch
from safetensors.torch import save

from cavia.tensor_file import digest

RAW = {  # what json.dumps does not write
    "@huge": "1e400",
    "@nan": "NaN",
    "@infinity": "-Infinity",
    "@digits": "9" * 5000,
    "@deep": "[" * 100_000 + "]" * 100_000,
    "@deep object": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "@twice": '{"a": 1, "a": 2}',
    "@half": '"\\ud800"',
    "@nothing": "",
}
VALUES = (
    None, True, False, 0, 1, -1, 3, 2**31, 10**18, 10**30, 0.5, -0.5, 1e-320, "", "x", "mse", "\0", "é" * 1000, [], {},
    [1, 2], [[]], {"a": 1}, ["x"], *RAW,
)  # fmt: skip


def mutated_json(value, chance):
    """The text of the value with one thing in it changed, somewhere."""
    changed = copy.deepcopy(value)
    holders = list(_holders(changed))
    holder = chance.choice(holders) if holders else None
    if not holder or chance.random() < 0.03:
        changed = chance.choice(VALUES)
    elif chance.random() < 0.15 and isinstance(holder, dict):
        holder[chance.choice(["unknown", "", "self", "class", "\ud800"])] = chance.choice(VALUES)
    else:
        place = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if chance.random() < 0.2:
            del holder[place]
        else:
            holder[place] = chance.choice(VALUES)
    text = json.dumps(changed)
    for name, raw in RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text


def _holders(value):
    """All objects and lists in it that are not empty."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inside:
        yield value
    for one in inside:
        yield from _holders(one)


def mutated_tensors(tensors, chance):
    """The tensors with one of them lost, renamed, or of another shape or type."""
    changed = dict(tensors)
    if not changed:
        return changed
    name = chance.choice(sorted(changed))
    value = changed[name]
    kind = chance.choice(["lost", "renamed", "more", "flat", "longer", "empty", "scalar", "type"])
    if kind in ("lost", "renamed"):
        del changed[name]
    if kind in ("renamed", "more"):
        changed[chance.choice(["unknown", "learner/unknown", "best/", "", "model.layers.9.weight"])] = value
    if kind == "flat":
        changed[name] = value.flatten()[None]
    if kind == "longer":
        changed[name] = torch.cat([value.flatten(), value.flatten()])
    if kind == "empty":
        changed[name] = value.flatten()[:0]
    if kind == "scalar":
        changed[name] = torch.zeros((), dtype=value.dtype)
    if kind == "type":
        kinds = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64]
        changed[name] = value.to(chance.choice(kinds))
    return changed


def seal(path, tensors, text):
    """Write a file of ours that says what it says, checksum included."""
    tensors = {name: value.contiguous().clone() for name, value in tensors.items()}
    path.write_bytes(save(tensors, metadata={"cavia": text, "sha256": digest(tensors, text)}))


def mutated_file(path, tensors, description, chance):
    """Such a file with a change in its description or its tensors."""
    if chance.random() < 0.7:
        seal(path, tensors, mutated_json(description, chance))
    else:
        seal(path, mutated_tensors(tensors, chance), json.dumps(description))
