#!/usr/bin/env python3
"""A plain PyTorch Llama trained by autograd and torch.optim.AdamW: what Femtotron's losses are compared with.

    reference_llama.py --weights DIR --batches FILE --seq-len 16 --global-batch 8 --steps 20 --lr 1e-3 ...

DIR holds config.json and safetensors with Hugging Face's names, FILE int64 tokens
[steps, global batch, seq_len + 1]. Prints one JSON object a line: step (from 1), loss, grad_norm (before clipping), lr.
Shares no code with Femtotron and knows nothing of pipelines, microbatches or replicas: a step is one forward and
backward over the global batch.
"""
import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_tables(seq_len, head_dim, theta):
    """cos and sin of position * theta^(-2i/head_dim), each frequency twice: [seq_len, head_dim]."""
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float32), frequencies)
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.head_dim = config["head_dim"]
        self.theta = config["rope_theta"]
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)

    def forward(self, x):
        batch, seq_len, _ = x.shape

        def project(linear, heads):
            return linear(x).view(batch, seq_len, heads, self.head_dim).transpose(1, 2)

        q, k = project(self.q_proj, self.heads), project(self.k_proj, self.kv_heads)
        v = project(self.v_proj, self.kv_heads)
        cos, sin = rotary_tables(seq_len, self.head_dim, self.theta)
        group = self.heads // self.kv_heads
        k = rotate(k, cos, sin).repeat_interleave(group, 1)
        v = v.repeat_interleave(group, 1)
        scores = rotate(q, cos, sin) @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        future = torch.ones(seq_len, seq_len, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(batch, seq_len, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = Mlp(config)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Llama(nn.Module):
    """Module names give the state dict Hugging Face's names."""

    def __init__(self, config):
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens):
        return self.lm_head(self.model(tokens))


def load_weights(folder):
    """All tensors of a folder: of model.safetensors, or of the files that its index names."""
    index = Path(folder) / "model.safetensors.index.json"
    files = {"model.safetensors"}
    if index.exists():
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return {name: tensor for file in sorted(files) for name, tensor in load_file(Path(folder) / file).items()}


def load_model(folder):
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    model = Llama(config)
    tensors = load_weights(folder)
    if config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors, strict=True)
    return model


@dataclass
class Optimization:
    steps: int
    lr: float
    min_lr: float = 0.0
    warmup_steps: int = 0
    decay: str = "cosine"
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def rate(self, step):
        """Learning rate of the update after `step` updates."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        t = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        factor = {"cosine": 0.5 * (1 + math.cos(math.pi * t)), "linear": 1 - t, "constant": 1.0}[self.decay]
        return self.lr if self.decay == "constant" else self.min_lr + (self.lr - self.min_lr) * factor


def train(model, batches, opt):
    """Yields step, loss, grad_norm and lr of each step; batches int64 [steps, global batch, seq_len + 1]."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": opt.weight_decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=opt.lr, betas=(opt.beta1, opt.beta2), eps=opt.eps, fused=False)
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = opt.rate(step)
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, opt.clip_norm if opt.clip_norm > 0 else math.inf)
        optimizer.step()
        yield {"step": step + 1, "loss": loss.item(), "grad_norm": norm.item(), "lr": opt.rate(step)}


def read_batches(path, steps, global_batch, seq_len):
    tokens = np.fromfile(path, dtype="<i8")
    want = steps * global_batch * (seq_len + 1)
    if tokens.size != want:
        raise SystemExit(f"{path}: {tokens.size} tokens, {steps} x {global_batch} x {seq_len + 1} are {want}")
    return torch.from_numpy(tokens).view(steps, global_batch, seq_len + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--global-batch", type=int, required=True)
    fields = Optimization.__dataclass_fields__
    for name, field in fields.items():
        required = name in ("steps", "lr")
        parser.add_argument("--" + name.replace("_", "-"), type=field.type, required=required,
                            default=None if required else field.default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    opt = Optimization(**{name: getattr(arguments, name) for name in fields})
    batches = read_batches(arguments.batches, opt.steps, arguments.global_batch, arguments.seq_len)
    for line in train(load_model(arguments.weights), batches, opt):
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
