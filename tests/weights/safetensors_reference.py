"""The safetensors package's side of safetensors_python.cpp: reads ours.safetensors and the checkpoints in untied and
tied of the folder that is named, and writes theirs.safetensors."""

import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

TYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def tensors():
    result = {name: torch.arange(7).to(getattr(torch, name)) for name in TYPES}
    result["matrix"] = torch.arange(6, dtype=torch.float32).view(2, 3)
    result["scalar"] = torch.tensor(2.5)
    result["none"] = torch.ones(0, 4)
    return result


def read(folder):
    found, expected = load_file(folder / "ours.safetensors"), tensors()
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert torch.equal(found[name], value), name
    with safe_open(folder / "ours.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}, file.metadata()


def write(folder):
    save_file(tensors(), folder / "theirs.safetensors", metadata={"format": "pt"})


def checkpoint(folder, tied):
    """Tensor i of the model holds 1 + 100 i + j / 64 at flat position j."""
    step = folder / (folder / "latest").read_text().strip()
    config = json.loads((step / "config.json").read_text())
    assert config["model_type"] == "llama" and config["tie_word_embeddings"] is tied, config
    assert config["num_hidden_layers"] == 4 and config["vocab_size"] == 11 and config["head_dim"] == 2, config
    names = ["model.embed_tokens.weight"]
    for layer in range(4):
        parts = ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
        parts += ["post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
        names += [f"model.layers.{layer}.{part}.weight" for part in parts]
    names += ["model.norm.weight"] + ([] if tied else ["lm_head.weight"])
    index = json.loads((step / "model.safetensors.index.json").read_text())
    assert sorted(index["weight_map"]) == sorted(names)
    total = 0
    for i, name in enumerate(names):
        with safe_open(step / index["weight_map"][name], "pt") as file:
            value = file.get_tensor(name)
        expected = torch.arange(value.numel(), dtype=torch.float32) / 64 + (1 + 100 * i)
        assert torch.equal(value.flatten(), expected), name
        total += value.numel() * value.element_size()
    assert index["metadata"]["total_size"] == total, (index["metadata"], total)


def main():
    folder = pathlib.Path(sys.argv[1])
    write(folder)
    read(folder)
    checkpoint(folder / "untied", tied=False)
    checkpoint(folder / "tied", tied=True)


main()
