"""Models and checkpoints whose files do not fit each other, though each has a true checksum."""

import hashlib
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from bigtrk.disk.files import seal, unseal
from bigtrk.errors import InputError
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.checkpoint.manifest import MANIFEST, shard_name
from bigtrk.training.model_files import load_model
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS
from tests.hostile.checkpoint_files import checkpoint_files, model_files
from tests.hostile.reader import one_line
from tests.hostile.stored_files import header_of


def write_model(folder: Path, **changes: bytes) -> Path:
    for name, content in {**model_files(), **changes}.items():
        (folder / name).write_bytes(content)
    return folder


def described(**model: Any) -> bytes:
    content = json.loads(model_files()[DESCRIPTION])
    content["configuration"]["model"] |= model
    return json.dumps(content).encode()


def test_the_largest_model_there_may_be_is_not_made_to_refuse_it(tmp_path: Path) -> None:
    """Its weights would be 300 GB in each of 256 layers."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    write_model(tmp_path, **{DESCRIPTION: described(hidden=65_536, layers=256, mlp_layers=16)})
    with pytest.raises(InputError, match=r"model\.safetensors: .* shape \[4, 4\], but the model"):
        load_model(tmp_path)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_maxrss - before.ru_maxrss < 2**18, "KiB"
    assert after.ru_utime - before.ru_utime < 20


def with_header(**change: Any) -> bytes:
    """The weights, with another header of one of them."""
    header, values = header_of(model_files()[WEIGHTS])
    name = next(name for name, of in header.items() if dict(of).get("shape") == [4, 4])  # type: ignore[call-overload]
    assert isinstance(header[name], dict)
    raw = json.dumps({**header, name: {**header[name], **change}}).encode()  # type: ignore[dict-item]
    return len(raw).to_bytes(8, "little") + raw + values


def with_tensors(**change: Any) -> bytes:
    tensors = {**load(model_files()[WEIGHTS]), **change}
    return save({name: tensor for name, tensor in tensors.items() if tensor is not None})


BIAS = "decoder.output_bias"


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (with_header(dtype="I32"), "is I32; make it F32, or train again"),
        (with_header(shape=[2, 8]), r"has shape \[2, 8\], but the model needs"),
        (with_header(shape=[2**62, 2**62]), r"is damaged \(.*\); restore it$"),
        (with_tensors(**{BIAS: None}), rf"'{BIAS}' is missing, but .* needs shape \[1\]"),
        (with_tensors(**{"a\nb": torch.ones(1)}), r"'a b' has shape \[1\], but the model has no"),
    ],
)
def test_weights_that_do_not_fit_the_model_are_refused(
    tmp_path: Path, weights: bytes, complaint: str
) -> None:
    write_model(tmp_path, **{WEIGHTS: weights})
    with pytest.raises(InputError, match=complaint) as caught:
        load_model(tmp_path)
    assert one_line(caught.value, tmp_path)


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """The folder of a good checkpoint of the run `tmp_path`."""
    step = tmp_path / "checkpoints" / "step-00000013"
    step.mkdir(parents=True)
    for name, content in checkpoint_files().items():
        (step / name).write_bytes(content)
    assert last_good(tmp_path).damaged == {}
    return step


def reseal(step: Path, **changes: Any) -> None:
    content = unseal((step / MANIFEST).read_bytes())
    (step / MANIFEST).write_bytes(seal({**content, **changes}))


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "", "x\n"])
def test_files_of_a_manifest_do_not_lead_elsewhere(step: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes((step / shard_name(0)).read_bytes())
    (shard,) = unseal((step / MANIFEST).read_bytes())["shards"]
    reseal(step, shards=[{**shard, "file": name}])
    with pytest.raises(InputError, match=r"shards\.0\.file is .*, not 'shard-00000") as caught:
        last_good(tmp_path)
    assert one_line(caught.value, tmp_path)


@pytest.mark.parametrize("change", ["dtype", "kind", "more", "less"])
def test_shards_that_do_not_hold_what_the_manifest_says(
    step: Path, tmp_path: Path, change: str
) -> None:
    tensors = load((step / shard_name(0)).read_bytes())
    name = "exp_avg/decoder.output_bias"
    values = tensors.pop(name)
    new = {
        "dtype": {name: values.int()},
        "kind": {name.replace("avg", "mean"): values},
        "more": {name: values, "other": values.clone()},
        "less": {},
    }[change]
    content = save({**tensors, **new})
    (step / shard_name(0)).write_bytes(content)
    (shard,) = unseal((step / MANIFEST).read_bytes())["shards"]
    fitting = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    reseal(step, shards=[{**shard, **fitting}])
    with pytest.raises(InputError, match=r"shard-0.* does not match manifest\.json"):
        last_good(tmp_path)


def test_checkpoints_of_other_versions_and_pipes_are_told(step: Path, tmp_path: Path) -> None:
    reseal(step, format="bigtrk checkpoint 3")
    with pytest.raises(InputError, match=r"is of another version \(bigtrk checkpoint 3\)"):
        last_good(tmp_path)
    (step / MANIFEST).write_text('{"content": {}, "sha256": "0"}\n')
    with pytest.raises(InputError, match=r"manifest\.json is damaged or of an older version \("):
        last_good(tmp_path)
    for name, content in checkpoint_files().items():
        (step / name).unlink()
        os.mkfifo(step / name)
        with pytest.raises(InputError, match=f"{name}: exists, but is not a file"):
            last_good(tmp_path)
        (step / name).unlink()
        (step / name).write_bytes(content)


def test_folders_of_other_names_are_no_checkpoints(step: Path, tmp_path: Path) -> None:
    for name in ("step-x", "step-00000014\n", "step-\x1b[31m", "step-" + "9" * 30):
        step.with_name(name).mkdir()
    found = last_good(tmp_path)
    assert (found.folder, found.damaged) == (step, {})
