#!/usr/bin/python3
"""Trains the language model that reprise-server starts with by default.

A causal linear-attention model (elu+1 with normaliser) of a few million
parameters, on the King James Bible, on a CPU, in under half an hour. Writes a
checkpoint in fla's `linear_attn` layout with its tokenizer, and a README.md
with what was done.

Needs these Debian packages (`scripts/packages train` installs them):
python3, python3-torch, python3-numpy, python3-regex, bible-kjv-text (the
text, public domain) and bible-kjv (the program `bible` that prints it).

The same seed, steps, precision and thread count on the same kind of machine
give the same weights, bit for bit, unless the time budget cuts the run short.
"""

import argparse
import contextlib
import math
import os
import pathlib
import platform
import sys
import time

# Threads that wait give their core to others. Read when PyTorch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import needs

needs.modules("numpy", "regex", "torch")

import numpy as np
import torch
import torch.nn.functional as F

import bible
import byte_level_bpe
import linear_attention_lm as lm
import model_card
import muon
import safetensors_file

EVALUATE_EVERY = 200  # steps
WARMUP_STEPS = 50
# Windows grow during training: (share of the run, tokens of a window). The
# model has no positions and no decay, so it must find out by itself what is
# near; it learns that far sooner where little is far.
WINDOWS = [(0.0, 32), (0.3, 64), (0.5, 128), (0.7, 256), (0.85, 512)]
EVALUATION_LENGTH = 512  # tokens
SAMPLE_PROMPTS = [
    "In the beginning",
    "And the LORD said unto Moses,",
    "Blessed is the man that",
    "And it came to pass, when the king heard",
]


def encode_chapters(tokenizer, chapters):
    """One long tensor of ids, the end-of-text token between chapters."""
    ids = [0]
    for chapter in chapters:
        ids += tokenizer.encode(chapter) + [0]
    return torch.tensor(ids)


def window_length(progress):
    """Tokens of a training window at this share of the run."""
    return [length for start, length in WINDOWS if start <= progress][-1]


def random_batch(ids, rows, length, generator):
    """Returns ids [rows, length + 1], cut from `ids` at random places.

    Every other row gets the end-of-text token as its first id, so that the
    model knows sequences with it and without it.
    """
    starts = torch.randint(len(ids) - length, (rows, 1), generator=generator)
    batch = ids[starts + torch.arange(length + 1)]
    batch[::2, 0] = 0
    return batch


def precision_context(precision):
    """bf16: matrix products in bfloat16, everything else in float32."""
    if precision == "bf16":
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def batch_loss(weights, config, batch, precision, dropout=0.0):
    """Mean loss in nats per token of a batch [rows, T + 1]."""
    with precision_context(precision):
        logits, _ = lm.forward(weights, config, batch[:, :-1], dropout=dropout)
    return F.cross_entropy(
        logits.float().flatten(0, 1), batch[:, 1:].flatten()
    )


@torch.no_grad()
def held_out_loss(weights, config, ids, precision, length=EVALUATION_LENGTH):
    """Nats per token over `ids`, in windows that each start from zero."""
    windows = (len(ids) - 1) // length
    index = torch.arange(windows)[:, None] * length
    batches = ids[index + torch.arange(length + 1)].split(
        max(1, 4096 // length)
    )
    total = sum(
        batch_loss(weights, config, b, precision).item() * len(b)
        for b in batches
    )
    return total / windows


@torch.no_grad()
def sample(weights, config, prompt_ids, count, temperature, generator):
    """Returns `count` ids after the prompt; temperature 0 is greedy."""
    step = torch.tensor([prompt_ids])
    state, out = None, []
    for _ in range(count):
        logits, state = lm.forward(
            weights, config, step, state, mix=lm.mix_recurrent
        )
        if temperature == 0:
            step = logits[:, -1].argmax(-1, keepdim=True)
        else:
            chances = torch.softmax(logits[:, -1] / temperature, -1)
            step = torch.multinomial(chances, 1, generator=generator)
        out.append(step.item())
        if out[-1] == 0:
            break
    return out


class Run:
    """Weights, optimiser and counters of one training run."""

    def __init__(self, options, config):
        self.options = options
        self.config = config
        self.generator = torch.Generator().manual_seed(options.seed)
        torch.manual_seed(options.seed)  # dropout
        self.weights = lm.random_weights(config, self.generator)
        for tensor in self.weights.values():
            tensor.requires_grad_()
        names = [n for n, w in self.weights.items() if w.dim() > 1]
        names.remove("model.embeddings.weight")
        self.optimisers = [
            muon.Muon([self.weights[n] for n in names], options.muon_rate),
            torch.optim.AdamW(
                [w for n, w in self.weights.items() if n not in names],
                options.rate, betas=(0.9, 0.95), weight_decay=0.01,
            ),
        ]
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["highest"] = group["lr"]
        self.step = 0
        self.seconds = 0.0  # of earlier parts of a resumed run
        self.started = time.monotonic()
        self.first_loss = math.inf
        self.best_loss = math.inf
        self.best_weights = None
        self.best_step = 0

    def elapsed(self):
        return self.seconds + time.monotonic() - self.started

    def progress(self):
        """0 at the start, 1 at the last step or when the time is over."""
        return max(
            self.step / self.options.steps,
            self.elapsed() / (60 * self.options.minutes),
        )

    def cut_short(self):
        return self.step < self.options.steps

    def rate_factor(self):
        """Linear warm-up, then half a cosine down to a twentieth."""
        down = 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress())))
        warm = min(1.0, (self.step + 1) / WARMUP_STEPS)
        return warm * (0.05 + 0.95 * down)

    def train_step(self, ids):
        """One batch; returns its loss."""
        options = self.options
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["highest"] * self.rate_factor()
        length = window_length(self.progress())
        batch = random_batch(
            ids, options.tokens // length, length, self.generator
        )
        loss = batch_loss(
            self.weights, self.config, batch, options.precision,
            options.dropout,
        )
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
        self.step += 1
        return loss.item()

    def evaluate(self, ids):
        """Held-out loss now; remembers the best weights."""
        loss = held_out_loss(
            self.weights, self.config, ids, self.options.precision
        )
        if loss < self.best_loss:
            self.best_loss, self.best_step = loss, self.step
            self.best_weights = {
                name: w.detach().clone() for name, w in self.weights.items()
            }
        return loss

    def save(self, path):
        """Writes all that `load` needs to go on where this run stands."""
        torch.save(
            {
                "weights": self.weights, "best": self.best_weights,
                "optimisers": [o.state_dict() for o in self.optimisers],
                "generator": self.generator.get_state(),
                "dropout": torch.get_rng_state(),
                "counters": (self.step, self.elapsed(), self.best_loss,
                             self.best_step, self.first_loss),
            },
            f"{path}.new",
        )
        pathlib.Path(f"{path}.new").replace(path)

    def load(self, path):
        saved = torch.load(path)
        with torch.no_grad():
            for name, tensor in self.weights.items():
                tensor.copy_(saved["weights"][name])
        self.best_weights = saved["best"]
        for optimiser, state in zip(self.optimisers, saved["optimisers"]):
            optimiser.load_state_dict(state)
        self.generator.set_state(saved["generator"])
        torch.set_rng_state(saved["dropout"])
        (self.step, self.seconds, self.best_loss, self.best_step,
         self.first_loss) = saved["counters"]


def train(run, train_ids, held_ids):
    """The loop. Stops at --steps or --minutes."""
    options = run.options
    if run.step == 0:
        run.first_loss = run.evaluate(held_ids)
    print(f"held-out loss before training: {run.first_loss:.3f} nats/token",
          flush=True)
    recent, shown = [], time.monotonic()
    while run.progress() < 1.0:
        recent.append(run.train_step(train_ids))
        if run.step % EVALUATE_EVERY and time.monotonic() - shown < 20:
            continue
        shown = time.monotonic()
        line = (
            f"step {run.step}/{options.steps} {run.elapsed() / 60:.1f} min "
            f"train {sum(recent) / len(recent):.3f} "
            f"window {window_length(run.progress())}"
        )
        recent = []
        if run.step % EVALUATE_EVERY == 0:
            line += f" held-out {run.evaluate(held_ids):.3f}"
        print(line, flush=True)
        if options.checkpoint:
            run.save(options.checkpoint)
    if run.step % EVALUATE_EVERY:
        run.evaluate(held_ids)


def stored(weights):
    """The weights as the file holds them: rounded to float16."""
    return {n: w.detach().to(torch.float16) for n, w in weights.items()}


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=pathlib.Path, default="models/embedded",
        help="folder to write (default: %(default)s)")
    add("--minutes", type=float, default=30,
        help="time budget; the learning rate comes down in time "
        "(default: %(default)s)")
    add("--steps", type=int, default=1800, help="default: %(default)s")
    add("--tokens", type=int, default=4096,
        help="tokens of a batch (default: %(default)s)")
    add("--rate", type=float, default=3e-3,
        help="highest learning rate of AdamW: embeddings and norms "
        "(default: %(default)s)")
    add("--muon-rate", type=float, default=0.02,
        help="highest learning rate of Muon: all other matrices "
        "(default: %(default)s)")
    add("--dropout", type=float, default=0.05, help="default: %(default)s")
    add("--layers", type=int, default=6, help="default: %(default)s")
    add("--width", type=int, default=192,
        help="model width; heads are 32 wide (default: %(default)s)")
    add("--inner", type=int, default=384,
        help="inner width of the MLP (default: %(default)s)")
    add("--vocabulary", type=int, default=2048, help="default: %(default)s")
    add("--precision", choices=["bf16", "f32"], default="bf16",
        help="of matrix products in training; bf16 is quick on CPUs with "
        "AVX-512 (default: %(default)s)")
    add("--threads", type=int, default=1, help="default: %(default)s")
    add("--seed", type=int, default=1611, help="default: %(default)s")
    add("--checkpoint", help="file to save progress in, and to go on from "
        "if it exists (default: none)")
    options = parser.parse_args()
    if options.width % 32:
        parser.error("--width must be a multiple of 32")
    return options


def main():
    options = parse_options()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    options.out.mkdir(parents=True, exist_ok=True)

    chapters = bible.read_chapters()
    train_text, held_text = bible.split_chapters(chapters)
    print(f"{len(chapters)} chapters, {len(held_text)} of them held out")
    tokenizer = byte_level_bpe.Tokenizer(
        byte_level_bpe.train_merges(
            "".join(train_text), options.vocabulary - 257
        )
    )
    tokenizer.save(options.out)
    train_ids = encode_chapters(tokenizer, train_text)
    held_ids = encode_chapters(tokenizer, held_text)
    held_bytes = sum(len(c.encode()) + 1 for c in held_text)
    print(f"{len(train_ids)} tokens to train on, {len(held_ids)} held out")

    config = dict(
        lm.CONFIG, hidden_size=options.width, num_heads=options.width // 32,
        num_hidden_layers=options.layers, intermediate_size=options.inner,
        vocab_size=len(tokenizer.vocab),
    )
    run = Run(options, config)
    parameters = sum(w.numel() for w in run.weights.values())
    print(f"{parameters} parameters, {lm.state_bytes(config)} bytes of state")
    if options.checkpoint and pathlib.Path(options.checkpoint).exists():
        run.load(options.checkpoint)
        print(f"going on from step {run.step}")
    train(run, train_ids, held_ids)
    minutes = run.elapsed() / 60

    halves = stored(run.best_weights)
    byte_level_bpe.write_json(options.out / "config.json", config)
    safetensors_file.write(
        options.out / "model.safetensors",
        {name: w.numpy() for name, w in halves.items()}, {"format": "pt"},
    )
    print("measuring the stored weights", flush=True)
    weights = {name: w.float() for name, w in halves.items()}
    losses = {
        length: held_out_loss(
            weights, config, held_ids, options.precision, length
        )
        for length in (EVALUATION_LENGTH, 4 * EVALUATION_LENGTH)
    }
    generator = torch.Generator().manual_seed(options.seed)
    samples = [
        (prompt, temperature, tokenizer.decode(sample(
            weights, config, tokenizer.encode(prompt), 120, temperature,
            generator)))
        for prompt in SAMPLE_PROMPTS for temperature in (0, 0.8)
    ]
    model_card.write(
        options.out / "README.md", options, config, WINDOWS, run,
        {
            "parameters": parameters, "minutes": minutes,
            "chapters": len(chapters), "held_chapters": len(held_text),
            "held_out_every": bible.HELD_OUT_EVERY,
            "train_tokens": len(train_ids), "held_tokens": len(held_ids),
            "bits_per_byte": len(held_ids) / held_bytes / math.log(2),
            "losses": losses, "samples": samples,
            "machine": model_card.machine(),
            "versions": f"Python {platform.python_version()}, "
            f"PyTorch {torch.__version__}, NumPy {np.__version__}",
        },
    )
    for length, loss in losses.items():
        print(f"held-out loss, windows of {length}: {loss:.3f} nats/token")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
