"""The King James Bible as Debian's `bible-kjv` prints it: the text that the
embedded model was trained on, and the part of it that was held out."""

import re
import subprocess
import sys

HELD_OUT_EVERY = 25  # one chapter in so many is never trained on


def read_chapters():
    """Returns the Bible's chapters, each a string with a verse per line."""
    try:
        done = subprocess.run(
            ["bible", "-f", "gen1:1-rev22:21"],
            check=True, capture_output=True, text=True,
        )
    except FileNotFoundError:
        sys.exit("no program `bible`: run scripts/packages train")
    chapters, last = [], None
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"(\w+):\d+ (.+)", line.strip())
        if match is None:
            sys.exit(f"bible: not a verse: {line!r}")
        if match[1] != last:
            chapters.append("")
            last = match[1]
        chapters[-1] += match[2] + "\n"
    return chapters


def split_chapters(chapters):
    """Returns (chapters to train on, chapters held out)."""
    held = [c for i, c in enumerate(chapters) if i % HELD_OUT_EVERY == 12]
    train = [c for i, c in enumerate(chapters) if i % HELD_OUT_EVERY != 12]
    return train, held
