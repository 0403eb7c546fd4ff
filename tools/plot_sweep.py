#!/usr/bin/env python3
"""Draws sweeps of `reprise-bench` beside their limits.

  reprise-bench --shape=rwkv7-0.1b --sweep=sessions --json > sessions.json
  tools/plot_sweep.py sessions.json --out sessions.svg

A file is the output of one sweep, over sessions or positions. Every file is a
panel, every type of weights a line in it, and its limit a dashed one.
"""

import argparse
import json
import pathlib
import re

import needs

needs.modules("matplotlib")

import matplotlib  # noqa: E402

matplotlib.use("svg")
# The same file for the same figures, with its text as text.
matplotlib.rcParams["svg.hashsalt"] = "reprise"
matplotlib.rcParams["svg.fonttype"] = "none"

import matplotlib.pyplot as plt  # noqa: E402

# (name of a figure, axis of what is swept, scale of the figures).
SWEEPS = [
    (re.compile(r"decode, (\d+) sessions"), "sessions that decode together",
     "log"),
    (re.compile(r"time per token at position (\d+)"), "position", "linear"),
]


def points(figures, name):
    """[(swept, figure)] of the figures of that name."""
    matches = [(name.fullmatch(f["name"]), f) for f in figures]
    return [(int(match[1]), figure) for match, figure in matches if match]


def draw(axes, path):
    for run in json.loads(path.read_text())["runs"]:
        for name, label, scale in SWEEPS:
            found = points(run["figures"], name)
            if not found:
                continue
            swept = [x for x, _ in found]
            line, = axes.plot(swept, [f["value"] for _, f in found], "o-",
                              label=run["weight_type"])
            axes.plot(swept, [f["limit"] for _, f in found], "--",
                      color=line.get_color(), linewidth=1)
            axes.set_xlabel(label)
            axes.set_ylabel(found[0][1]["unit"] + " (dashed: the limit)")
            axes.set_title(run["model"], fontsize=9)
            axes.set_yscale(scale)
    if not axes.lines:
        raise SystemExit(f"plot_sweep: {path} has no sweep over sessions or "
                         "positions")
    axes.set_xscale("log")
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="JSON")
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help="the drawing, an SVG file")
    args = parser.parse_args()
    figure, panels = plt.subplots(1, len(args.files), squeeze=False,
                                  figsize=(6 * len(args.files), 4.2))
    for axes, path in zip(panels[0], args.files):
        draw(axes, path)
    figure.tight_layout()
    figure.savefig(args.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
