"""Drawings of sweeps: that every panel has its axes and lines, and what is said
of a file without a sweep. Without Matplotlib: that the tool says so."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/plot_sweep.py"
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def run_of(names, weights="bf16"):
    figures = [{"name": name, "value": 10.0 + i, "unit": "tokens/s",
                "limit": 20.0 + i} for i, name in enumerate(names)]
    return {"model": "a model", "weight_type": weights, "figures": figures}


class PlotSweepTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.svg"

    def plot(self, *runs_of_files):
        files = []
        for i, runs in enumerate(runs_of_files):
            files.append(self.folder / f"{i}.json")
            files[-1].write_text(json.dumps({"runs": runs}))
        return subprocess.run(
            [sys.executable, "-B", TOOL, *files, "--out", self.out],
            capture_output=True, text=True, check=False)

    @unittest.skipUnless(HAS_MATPLOTLIB, "python3-matplotlib is not installed")
    def test_draws_a_panel_for_every_file(self):
        sessions = ["decode, 1 sessions", "decode, 16 sessions"]
        positions = ["time per token at position 10",
                     "the same at position 100, relative",
                     "time per token at position 100"]
        result = self.plot([run_of(sessions), run_of(sessions, "int8")],
                           [run_of(positions)])
        self.assertEqual(result.returncode, 0, result.stderr)
        drawing = self.out.read_text()
        for text in ("sessions that decode together", "position", "bf16",
                     "int8", "a model", "tokens/s (dashed: the limit)"):
            self.assertIn(f">{text}<", drawing)
        self.assertEqual(drawing.count(">bf16<"), 2)

    @unittest.skipUnless(HAS_MATPLOTLIB, "python3-matplotlib is not installed")
    def test_refuses_a_file_without_a_sweep(self):
        result = self.plot([run_of(["prefill, 512 tokens"])])
        self.assertEqual(result.returncode, 1)
        self.assertIn("has no sweep over sessions or positions", result.stderr)
        self.assertFalse(self.out.exists())

    @unittest.skipIf(HAS_MATPLOTLIB, "Matplotlib is there")
    def test_says_what_to_install(self):
        result = self.plot([])
        self.assertEqual(result.returncode, 1)
        self.assertIn("run scripts/packages train", result.stderr)


if __name__ == "__main__":
    unittest.main()
