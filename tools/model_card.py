"""Writes the README.md that lies beside a trained model."""

import platform

import linear_attention_lm as lm


def machine():
    """The CPU's name as Linux gives it, without the host's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def sample_text(samples):
    """The samples as quoted paragraphs."""
    out = []
    for prompt, temperature, text in samples:
        how = "greedy" if temperature == 0 else f"temperature {temperature}"
        lines = f"**{prompt}**{text}".rstrip().split("\n")
        out.append(f"{how}:\n\n" + "\n>\n".join(f"> {x}" for x in lines))
    return "\n\n".join(out)


def write(path, options, config, windows, run, facts):
    """Writes the card. `facts` is what main() of the training measured."""
    f = facts
    bits = {n: loss * f["bits_per_byte"] for n, loss in f["losses"].items()}
    length = min(f["losses"])
    seen = run.step * options.tokens
    stop = (
        "the time budget ended the run: not repeatable bit for bit"
        if run.cut_short() else "all steps done: the run can be repeated"
    )
    others = "\n".join(
        f"| held-out loss, windows of {n} tokens | {f['losses'][n]:.3f} "
        f"nats/token, {bits[n]:.3f} bits/byte |"
        for n in f["losses"]
    )
    text = f"""# The embedded model

A small causal linear-attention language model (feature map elu+1 with
normaliser), trained from scratch on the King James Bible by
`tools/train_embedded_model.py`. It exists so that the server does something
real right after it is built: it writes text in the style of its source and
knows nothing else.

Linear attention of this kind has neither positions nor decay, so the model had
to learn by itself what came just before. Expect phrases and sentences that
hold together, not stories. Sequences longer than the longest training windows
({windows[-1][1]} tokens) work, but the text gets worse. Greedy decoding
soon repeats itself; temperature 0.8 reads better.

| | |
| --- | --- |
| parameters | {f['parameters']:,} |
| layers, width, MLP | {config['num_hidden_layers']}, {config['hidden_size']}, \
{config['intermediate_size']} |
| heads | {config['num_heads']} of 32 |
| vocabulary | {config['vocab_size']}, byte-level BPE, trained on the same text |
| state of a session | {lm.state_bytes(config):,} bytes in float32 |
| weights on disk | float16, tied embeddings |

## Data

Debian's `bible-kjv-text` (the text) printed by `bible-kjv`: {f['chapters']}
chapters, a verse per line, `<|endoftext|>` between chapters. One
chapter in {f['held_out_every']} ({f['held_chapters']} of them) is held out. \
{f['train_tokens']:,} tokens to train on,
{f['held_tokens']:,} held out.

## Training

| | |
| --- | --- |
| command | `tools/train_embedded_model.py --steps {options.steps} \
--minutes {options.minutes:g} --tokens {options.tokens} \
--muon-rate {options.muon_rate:g} --rate {options.rate:g} --dropout {options.dropout:g} \
--precision {options.precision} --threads {options.threads} \
--seed {options.seed}` |
| optimiser | Muon for the inner matrices, AdamW for embeddings and norms; cosine |
| batches | {options.tokens} tokens; windows grow from \
{windows[0][1]} to {windows[-1][1]} tokens during the run |
| steps done | {run.step} ({stop}) |
| tokens seen | {seen:,} ({seen / f['train_tokens']:.1f} times the text) |
| time | {f['minutes']:.1f} minutes |
| machine | {f['machine']}, {options.threads} thread(s) |
| software | {f['versions']} |
| held-out loss before | {run.first_loss:.3f} nats/token, \
{run.first_loss * f['bits_per_byte']:.3f} bits/byte |
{others}

The losses after training are those of the stored float16 weights, with matrix
products in {options.precision}. The weights kept are those with the lowest
held-out loss in windows of {length} tokens (step {run.best_step}).

## Samples

{sample_text(f['samples'])}

## Files

- `config.json`, `model.safetensors`: the layout of flash-linear-attention's
  `linear_attn` models.
- `tokenizer.json`, `tokenizer_config.json`: Hugging Face byte-level BPE.
- `golden.safetensors`, `tokenizer_golden.json`: expected outputs, written by
  `tools/write_golden.py` from the stored weights in float64.

## Licence

The text is in the public domain (the translation of 1611). The weights and
the files here are under the project's licence.
"""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
