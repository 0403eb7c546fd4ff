#!/usr/bin/env python3
"""Converts an RWKV checkpoint from .pth to a folder that Reprise serves.

The folder gets model.safetensors, with the tensors as they are in the .pth
file (same names, same bytes), and config.json, with the version and the sizes
that their names and shapes tell. Needs nothing but Python: no torch, no numpy.
The file is read as data, never run: a .pth file is a pickle, which is a
program, and all of it that is not tensors is refused.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sys

import safetensors_header
from torch_checkpoint import Checkpoint, Refused

# Vocabularies in which token 0 ends a text: RWKV World's, and that of the Pile
# (GPT-NeoX's) in its two sizes.
VOCABULARIES_WITH_END = (65536, 50277, 50304)


def main(argv=None):
    options = parse(argv)
    try:
        convert(options)
    except Refused as error:
        return fail(f"{options.checkpoint}: {error}")
    except OSError as error:
        return fail(error)
    return 0


def fail(message):
    print(f"convert_rwkv_pth: {message}", file=sys.stderr)
    return 1


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 if the folder is complete, 1 if not (and then "
        "nothing is left of it), 2 for a bad command line.")
    parser.add_argument("checkpoint", metavar="MODEL.pth", type=pathlib.Path,
                        help="checkpoint of RWKV-4, 5, 6 or 7 as "
                        "huggingface.co/BlinkDL has them")
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path,
                        help="where to write; made if absent, else it must be "
                        "empty")
    parser.add_argument("--vocab", metavar="FILE", type=pathlib.Path,
                        help="the tokenizer's file, copied into the folder: "
                        "rwkv_vocab_v20230424.txt, or a tokenizer.json")
    parser.add_argument("--quiet", action="store_true",
                        help="say nothing unless something is wrong")
    return parser.parse_args(argv)


def convert(options):
    name = vocabulary_name(options.vocab)
    with Checkpoint(options.checkpoint) as checkpoint:
        config = infer_config(checkpoint.tensors)
        made = make_folder(options.folder)
        partial = options.folder / "model.safetensors.partial"
        try:
            write_tensors(checkpoint, partial, options.quiet)
            if name is not None:
                shutil.copyfile(options.vocab, options.folder / name)
            with open(options.folder / "config.json", "w",
                      encoding="utf-8") as file:
                json.dump(config, file, indent=2)
                file.write("\n")
            os.replace(partial, options.folder / "model.safetensors")
        except BaseException:
            remove(options.folder, made,
                   [partial.name, "config.json", *([name] if name else [])])
            raise
    if not options.quiet:
        print(f"{options.folder}: RWKV-{config['model_type'][-1]}, "
              f"{config['num_hidden_layers']} layers of "
              f"{config['hidden_size']}, vocabulary of {config['vocab_size']}")
        if name is None:
            print("Put the tokenizer's file beside it: "
                  "rwkv_vocab_v20230424.txt for RWKV World models, "
                  "tokenizer.json for others.")


def vocabulary_name(path):
    """What the file is called in the folder: the name decides what it is."""
    if path is None:
        return None
    known = path.name in ("tokenizer.json", "tokenizer.model") or (
        re.fullmatch(r"rwkv_vocab_.*\.txt", path.name))
    if not known:
        raise Refused(f"--vocab {path}: the server looks for tokenizer.json, "
                      "tokenizer.model or rwkv_vocab_*.txt; rename the file")
    if not path.is_file():
        raise Refused(f"--vocab {path}: there is no such file")
    return path.name


def make_folder(folder):
    """Whether the folder had to be made."""
    if folder.is_dir():
        if any(folder.iterdir()):
            raise Refused(f"the folder {folder} is not empty")
        return False
    folder.mkdir(parents=True)
    return True


def remove(folder, made, names):
    for name in names:
        (folder / name).unlink(missing_ok=True)
    if made:
        folder.rmdir()


# ---- Config -----------------------------------------------------------------


def infer_config(tensors):
    version = infer_version(tensors)
    vocab_size, width = matrix(tensors, "emb.weight")
    config = {
        "architectures": [f"RWKV{version}"],
        "model_type": f"rwkv{version}",
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_hidden_layers": count_layers(tensors),
    }
    if version == 7:
        heads, head_dim = matrix(tensors, "blocks.0.att.r_k")
        if heads * head_dim != width:
            raise Refused(f"blocks.0.att.r_k is for {heads} heads of "
                          f"{head_dim}, emb.weight for a width of {width}")
        config["head_dim"] = head_dim
        config["intermediate_size"] = matrix(tensors,
                                             "blocks.0.ffn.key.weight")[0]
    if vocab_size in VOCABULARIES_WITH_END:
        config["eos_token_id"] = 0
    return config


def infer_version(tensors):
    """By the tensors that only one version has."""
    att = "blocks.0.att."
    if att + "r_k" in tensors:
        return 7
    if att + "time_maa_x" in tensors:
        return 6
    if att + "time_decay" in tensors:
        return 5 if att + "ln_x.weight" in tensors else 4
    raise Refused("it has no tensors like those of RWKV-4 to 7 "
                  f"({att}time_decay, {att}r_k)")


def matrix(tensors, name):
    if name not in tensors:
        raise Refused(f"it has no tensor {name}")
    shape = tensors[name].shape
    if len(shape) != 2:
        raise Refused(f"{name} has the shape {shape}, not that of a matrix")
    return shape


def count_layers(tensors):
    found = set()
    for name in tensors:
        match = re.match(r"blocks\.(\d{1,9})\.", name)
        if match:
            found.add(int(match[1]))
    for layer in range(len(found)):
        if layer not in found:
            raise Refused(f"it has {len(found)} layers, and no layer {layer}")
    return len(found)


# ---- Tensors ----------------------------------------------------------------


def write_tensors(checkpoint, path, quiet):
    # Wide types first, for the alignment of all.
    order = sorted(checkpoint.tensors.items(),
                   key=lambda item: -item[1].storage.item_bytes)
    total = sum(tensor.num_bytes for _, tensor in order)
    progress = Progress(total, quiet)
    with open(path, "wb") as file:
        file.write(safetensors_header.header(
            [(name, tensor.dtype, tensor.shape, tensor.num_bytes)
             for name, tensor in order]))
        for _, tensor in order:
            for chunk in checkpoint.chunks(tensor):
                file.write(chunk)
                progress.add(len(chunk))
    progress.end()


class Progress:
    """A line that rewrites itself on a terminal, ten lines elsewhere."""

    def __init__(self, total, quiet):
        self._total = total
        self._quiet = quiet
        self._done = 0
        self._shown = 0
        self._live = sys.stderr.isatty()

    def add(self, count):
        self._done += count
        percent = 100 * self._done // self._total
        step = 1 if self._live else 10
        if not self._quiet and percent >= self._shown + step:
            self._shown = percent - percent % step
            text = f"{percent:3d} % of {self._total / 1e6:.1f} MB"
            print(f"\r{text}" if self._live else text, file=sys.stderr,
                  end="" if self._live else "\n", flush=True)

    def end(self):
        if self._live and not self._quiet:
            print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
