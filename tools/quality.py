#!/usr/bin/env python3
"""What each type of weights costs a model on text: perplexity, measured by the
server itself.

Starts `reprise-server` once for each type, scores every text on its own with
`reprise score`, and prints a row of the table in docs/quality.md for each type.
Without a TEXT it takes the chapters of the Bible that the embedded model was
not trained on (`scripts/packages train` installs them).

  tools/quality.py models/embedded
  tools/quality.py --weights f32 --weights bf16 MODEL_DIR chapter1.txt
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import bible

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_SECONDS = 120  # a large model is packed first


def start_server(binary, model, weights, folder):
    """Returns (the process, HOST:PORT)."""
    ports = folder / f"ports-{weights}"
    process = subprocess.Popen([
        binary / "reprise-server", f"--model={model}", f"--weights={weights}",
        "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
        "--store=memory:", f"--port-file={ports}", "--log-level=error",
    ])
    end = time.monotonic() + START_SECONDS
    while not ports.exists():
        if process.poll() is not None:
            sys.exit(f"quality: no server with --weights={weights}; see above")
        if time.monotonic() > end:
            process.kill()
            sys.exit(f"quality: no server within {START_SECONDS} s")
        time.sleep(0.05)
    port = dict(line.split() for line in ports.read_text().splitlines())["grpc"]
    return process, f"127.0.0.1:{port}"


def score(binary, address, text):
    """Returns (tokens, bytes, natural log-probability) of what was scored."""
    done = subprocess.run(
        [binary / "reprise", f"--server={address}", "score", "-", "--json"],
        input=text, stdout=subprocess.PIPE, text=True,
    )
    if done.returncode != 0:
        sys.exit("quality: `reprise score` failed; see above")
    totals = json.loads(done.stdout.splitlines()[-1])["totals"]
    # Protobuf JSON writes 64-bit integers as strings.
    return (int(totals["scored_tokens"]), int(totals["scored_bytes"]),
            totals["logprob"])


def read_text(name):
    """The text of a file; ends the script if it has none."""
    try:
        return pathlib.Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"quality: {name}: {error}")


def measure(binary, model, weights, texts):
    """Returns the sums of score() over the texts."""
    with tempfile.TemporaryDirectory() as folder:
        server, address = start_server(
            binary, model, weights, pathlib.Path(folder)
        )
        try:
            scores = [score(binary, address, text) for text in texts]
        finally:
            server.terminate()
            server.wait()
    return [sum(column) for column in zip(*scores)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL_DIR")
    parser.add_argument("texts", metavar="TEXT", nargs="*",
                        help="files of UTF-8 text")
    parser.add_argument("--weights", action="append",
                        help="a type; give it more than once for more "
                             "[f32 bf16 int8]")
    parser.add_argument("--bin", type=pathlib.Path,
                        default=ROOT / "build/release/bin",
                        help="folder of the programs [build/release/bin]")
    options = parser.parse_args()
    for program in "reprise-server", "reprise":
        if not (options.bin / program).is_file():
            sys.exit(f"quality: no {options.bin / program}: build it with "
                     "`cmake --preset release && ninja -C build/release "
                     f"{program}`, or say with --bin where it is")
    texts = [read_text(name) for name in options.texts]
    if not texts:
        texts = bible.split_chapters(bible.read_chapters())[1]
    name = pathlib.Path(options.model).resolve().name
    print("| model | weights | tokens | nats/token | bits/byte | perplexity "
          "| perplexity, beside the first |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    first = None
    for weights in options.weights or ["f32", "bf16", "int8"]:
        tokens, size, logprob = measure(
            options.bin, options.model, weights, texts
        )
        nats = -logprob / tokens
        first = nats if first is None else first
        print(f"| {name} | {weights} | {tokens} | {nats:.5f} "
              f"| {-logprob / math.log(2) / size:.5f} | {math.exp(nats):.4f} "
              f"| {100 * math.expm1(nats - first):+.3f}% |", flush=True)


if __name__ == "__main__":
    main()
