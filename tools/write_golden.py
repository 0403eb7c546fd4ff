#!/usr/bin/python3
"""Writes what a right engine must compute from the embedded model.

  golden.safetensors      ids, logits and states, from a float64 run of the
                          weights as stored, one token after the other
  tokenizer_golden.json   texts and their ids

The golden prompt is the beginning of a held-out chapter. Before writing, the
recurrent form is compared with the chunked form (< 1e-9) and with a float32
run (the tolerance of the engine's tests). With --check, nothing is written:
other golden cases of the same layout are recomputed and compared.

Needs the packages that train_embedded_model.py needs.
"""

import argparse
import json
import pathlib
import sys

import needs

needs.modules("numpy", "regex", "torch")

import numpy as np
import torch

import bible
import byte_level_bpe
import linear_attention_lm as lm
import safetensors_file
import tokenizer_cases

FIRST, SECOND, GREEDY = 100, 37, 32  # tokens
LEAST_MARGIN = 1e-2
LOGITS_TOLERANCE = 2e-4
STATE_TOLERANCE = 1e-4  # times the largest value of the state, at least 1
FORMS_TOLERANCE = 1e-9
FORMS = {"recurrent": lm.mix_recurrent, "chunked": lm.mix_chunked}


def load_model(folder, dtype):
    """Returns (config, weights) of a checkpoint folder."""
    config = json.loads((folder / "config.json").read_text())
    lm.check_supported(config)
    arrays = safetensors_file.read(folder / "model.safetensors")
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    if shapes != lm.tensor_shapes(config):
        sys.exit(f"{folder}: the tensors are not those of its config.json")
    weights = {n: torch.tensor(a.astype("<f8")) for n, a in arrays.items()}
    return config, {n: w.to(dtype) for n, w in weights.items()}


def run_case(weights, config, first, second, mix):
    """ids [B,T], [B,T2] -> {golden name: array} of logits and states."""
    logits, state = lm.forward(weights, config, first, mix=mix)
    logits_2, state_2 = lm.forward(weights, config, second, state, mix=mix)
    results = {"logits": logits, "logits_2": logits_2}
    for name, layers in (("state", state), ("state_2", state_2)):
        for layer, (sums, z) in enumerate(layers):
            results[f"{name}.{layer}.recurrent"] = sums
            results[f"{name}.{layer}.z"] = z
    return {name: tensor.numpy() for name, tensor in results.items()}


def run_greedy(weights, config, first):
    """Returns the greedy ids [B,32] after `first` and their margins."""
    step, state, ids, margins = first, None, [], []
    for _ in range(GREEDY):
        logits, state = lm.forward(
            weights, config, step, state, mix=lm.mix_recurrent
        )
        best = logits[:, -1].topk(2)
        margins.append(best.values[:, 0] - best.values[:, 1])
        step = best.indices[:, :1]
        ids.append(step[:, 0])
    return torch.stack(ids, 1).numpy(), torch.stack(margins, 1).numpy()


def largest_errors(got, want):
    """Returns the largest logits error, and state error over its scale."""
    logits, states = 0.0, 0.0
    for name in got:
        error = np.abs(got[name] - want[name]).max()
        if name.startswith("logits"):
            logits = max(logits, error)
        else:
            states = max(states, error / max(1, np.abs(want[name]).max()))
    return logits, states


@torch.no_grad()
def check_case(folder):
    """Recomputes a golden case in float64 and float32; True if all agree."""
    want = safetensors_file.read(folder / "golden.safetensors")
    first = torch.tensor(want["input_ids"].astype("<i8"))
    second = torch.tensor(want["input_ids_2"].astype("<i8"))
    all_good = True
    for dtype in (torch.float64, torch.float32):
        config, weights = load_model(folder, dtype)
        greedy, _ = run_greedy(weights, config, first)
        same = int((greedy == want["greedy_ids"]).sum())
        for form, mix in FORMS.items():
            got = run_case(weights, config, first, second, mix)
            logits, states = largest_errors(got, want)
            good = (
                logits < LOGITS_TOLERANCE and states < STATE_TOLERANCE
                and same == greedy.size
            )
            all_good = all_good and good
            print(
                f"{folder.name} {str(dtype)[6:]} {form}: logits "
                f"{logits:.1e}, state {states:.1e}, greedy {same} of "
                f"{greedy.size}: {'ok' if good else 'FAIL'}"
            )
    return all_good


def choose_prompt(weights, config, tokenizer):
    """Returns (ids [1,T], ids [1,T2], greedy ids, margins).

    The first held-out chapter whose greedy continuation is never a close
    decision, so that float32 must come to the same ids.
    """
    chapters = bible.read_chapters()
    for chapter in bible.split_chapters(chapters)[1]:
        ids = tokenizer.encode(chapter)
        if len(ids) < FIRST + SECOND:
            continue
        first = torch.tensor([ids[:FIRST]])
        second = torch.tensor([ids[FIRST : FIRST + SECOND]])
        greedy, margins = run_greedy(weights, config, first)
        if margins.min() > LEAST_MARGIN:
            return first, second, greedy, margins
    sys.exit("no held-out chapter has a clear greedy continuation")


@torch.no_grad()
def write_model_golden(folder, tokenizer):
    config, weights = load_model(folder, torch.float64)
    first, second, greedy, margins = choose_prompt(
        weights, config, tokenizer
    )
    golden = run_case(weights, config, first, second, lm.mix_recurrent)
    chunked = run_case(weights, config, first, second, lm.mix_chunked)
    forms = max(largest_errors(chunked, golden))
    print(f"recurrent and chunked form differ by {forms:.1e} in float64")
    if forms >= FORMS_TOLERANCE:
        sys.exit("the two forms do not agree: nothing written")
    tensors = {
        "input_ids": first.numpy().astype("<i4"),
        "logits": golden.pop("logits"),
        "input_ids_2": second.numpy().astype("<i4"),
        "logits_2": golden.pop("logits_2"),
        "greedy_ids": greedy.astype("<i4"),
        "greedy_margin": margins,
        **golden,
    }
    for name, array in tensors.items():
        if array.dtype == np.float64:
            tensors[name] = array.astype("<f4")
    path = folder / "golden.safetensors"
    safetensors_file.write(path, tensors)
    print(f"{path}: {FIRST} + {SECOND} tokens, smallest greedy margin "
          f"{margins.min():.1e}")
    print("text:", repr(tokenizer.decode(first[0].tolist())))
    print("greedy:", repr(tokenizer.decode(greedy[0].tolist())))


def write_tokenizer_golden(folder, tokenizer):
    cases = []
    for text in tokenizer_cases.TEXTS:
        ids = tokenizer.encode(text)
        if tokenizer.decode(ids) != text:
            sys.exit(f"decoding does not give back {text!r}")
        cases.append({"text": text, "ids": ids})
    path = folder / "tokenizer_golden.json"
    with open(path, "w", encoding="ascii") as file:
        lines = ",\n".join("  " + json.dumps(case) for case in cases)
        file.write('{"cases": [\n' + lines + "\n]}\n")
    print(f"{path}: {len(cases)} texts")


def check_tokenizer(folder):
    """Compares the encoder with a folder of tokenizer golden data.

    For tokenizers of this kind only (GPT-2's is one).
    """
    tokenizer = byte_level_bpe.Tokenizer.load(folder / "tokenizer.json")
    name = "golden.json"
    if not (folder / name).exists():
        name = "tokenizer_golden.json"
    cases = json.loads((folder / name).read_text())["cases"]
    wrong = 0
    for case in cases:
        ids = tokenizer.encode(case["text"])
        if ids != case["ids"]:
            wrong += 1
            print(f"{case['text']!r}: got {ids}, want {case['ids']}")
    print(f"{folder.name}: {len(cases) - wrong} of {len(cases)} texts ok")
    return wrong == 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", type=pathlib.Path, default="models/embedded",
        help="checkpoint folder to read and write (default: %(default)s)",
    )
    parser.add_argument(
        "--check", type=pathlib.Path, nargs="+", metavar="CASE_DIR",
        help="recompute these golden cases instead",
    )
    parser.add_argument(
        "--check-tokenizer", type=pathlib.Path, metavar="DIR",
        help="encode the texts of this folder's golden.json instead",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check or options.check_tokenizer:
        good = [check_case(folder) for folder in options.check or []]
        if options.check_tokenizer:
            good.append(check_tokenizer(options.check_tokenizer))
        sys.exit(0 if all(good) else 1)
    tokenizer = byte_level_bpe.Tokenizer.load(
        options.model / "tokenizer.json"
    )
    write_tokenizer_golden(options.model, tokenizer)
    write_model_golden(options.model, tokenizer)
    if not check_case(options.model):
        sys.exit(1)


if __name__ == "__main__":
    main()
