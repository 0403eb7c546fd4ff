"""Tests of tools/convert_rwkv_pth.py, with files written by hand."""

import io
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tests" / "tools"))

import convert_rwkv_pth  # noqa: E402
import pth_writer as pth  # noqa: E402

KINDS = {"F32": "FloatStorage", "F16": "HalfStorage",
         "BF16": "BFloat16Storage"}
GOLDEN = pathlib.Path(
    os.environ.get("REPRISE_GOLDEN", ROOT.parent / "shared" / "golden"))


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}, after checking that nothing overlaps."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    end = 0
    for name, entry in header.items():
        begin, end_of_this = entry["data_offsets"]
        tensors[name] = (entry["dtype"], tuple(entry["shape"]),
                         data[8 + size + begin : 8 + size + end_of_this])
        end = max(end, end_of_this)
    if 8 + size + end != len(data):
        raise ValueError("the tensors do not fill the file")
    return tensors


class ConvertTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="reprise_pth_"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = self.dir / "model.pth"
        self.out = self.dir / "out"

    def convert(self, *options):
        """(exit status, standard output, standard error)"""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch("sys.stdout", out), mock.patch("sys.stderr", err):
            status = convert_rwkv_pth.main(
                [str(self.path), str(self.out), *options])
        return status, out.getvalue(), err.getvalue()

    def assert_converts(self, *options):
        status, out, err = self.convert(*options)
        self.assertEqual(status, 0, err)
        config = json.loads((self.out / "config.json").read_text())
        return config, read_safetensors(self.out / "model.safetensors"), out

    def assert_refused(self, *words):
        status, _, err = self.convert("--quiet")
        self.assertEqual(status, 1)
        self.assertTrue(err.startswith("convert_rwkv_pth: "), err)
        self.assertEqual(err.count("\n"), 1, err)
        for word in words:
            self.assertIn(word, err)
        self.assertFalse(self.out.exists())

    def write_model(self, tensors):
        """tensors: {name: (dtype, shape, bytes)}"""
        structure = {}
        storages = {}
        for key, (name, (dtype, shape, data)) in enumerate(tensors.items()):
            structure[name] = pth.tensor(KINDS[dtype], str(key), shape)
            storages[str(key)] = data
        pth.write(self.path, pth.ordered_dict(structure), storages)

    def small_model(self, version=7):
        """The least that looks like an RWKV model."""
        names = {
            4: ["blocks.0.att.time_decay"],
            5: ["blocks.0.att.time_decay", "blocks.0.att.ln_x.weight"],
            6: ["blocks.0.att.time_maa_x", "blocks.0.att.time_decay"],
            7: ["blocks.0.att.r_k", "blocks.0.ffn.key.weight",
                "blocks.1.ffn.key.weight"],
        }[version]
        tensors = {"emb.weight": ("BF16", (3, 4), bytes(range(24)))}
        for name in names:
            tensors[name] = ("F32", (2, 2), bytes(range(16)))
        return tensors


class InferenceTest(ConvertTest):
    def test_tells_versions_by_their_tensors(self):
        for version in (4, 5, 6, 7):
            with self.subTest(version=version):
                self.write_model(self.small_model(version))
                config, _, out = self.assert_converts()
                self.assertEqual(config["model_type"], f"rwkv{version}")
                self.assertEqual(config["vocab_size"], 3)
                self.assertEqual(config["hidden_size"], 4)
                self.assertEqual(config["num_hidden_layers"],
                                 2 if version == 7 else 1)
                self.assertNotIn("eos_token_id", config)
                self.assertIn(f"RWKV-{version}", out)
                self.assertIn("rwkv_vocab_v20230424.txt", out)
                shutil.rmtree(self.out)

    def test_reads_sizes_of_rwkv7_from_shapes(self):
        self.write_model(self.small_model(7))
        config, _, _ = self.assert_converts()
        self.assertEqual(config["head_dim"], 2)
        self.assertEqual(config["intermediate_size"], 2)

    def test_knows_the_end_of_text_of_the_world_vocabulary(self):
        tensors = self.small_model(6)
        tensors["emb.weight"] = ("F16", (65536, 1), bytes(131072))
        self.write_model(tensors)
        config, _, _ = self.assert_converts()
        self.assertEqual(config["eos_token_id"], 0)

    def test_refuses_a_model_that_is_not_rwkv(self):
        self.write_model({"emb.weight": ("F32", (1, 1), bytes(4))})
        self.assert_refused("no tensors like those of RWKV-4 to 7")

    def test_refuses_a_model_without_an_embedding(self):
        tensors = self.small_model(4)
        del tensors["emb.weight"]
        self.write_model(tensors)
        self.assert_refused("no tensor emb.weight")

    def test_refuses_a_missing_layer(self):
        tensors = self.small_model(7)
        tensors["blocks.3.ffn.key.weight"] = ("F32", (1,), bytes(4))
        self.write_model(tensors)
        self.assert_refused("3 layers, and no layer 2")

    def test_refuses_heads_that_do_not_fit_the_width(self):
        tensors = self.small_model(7)
        tensors["blocks.0.att.r_k"] = ("F32", (3, 2), bytes(24))
        self.write_model(tensors)
        self.assert_refused("blocks.0.att.r_k", "3 heads of 2")


class TensorsTest(ConvertTest):
    def test_keeps_names_types_shapes_and_bytes(self):
        tensors = self.small_model(7)
        tensors["half"] = ("F16", (3,), b"\x01\x7c\x00\xfe\xff\xff")
        tensors["scalar"] = ("F32", (), b"\x01\x02\x03\x04")
        self.write_model(tensors)
        _, written, _ = self.assert_converts()
        self.assertEqual(written, tensors)

    def test_reads_views_of_a_storage(self):
        model = self.small_model(4)
        structure = {}
        storages = {"s": struct.pack("<6f", *range(6))}
        for key, (name, (dtype, shape, data)) in enumerate(model.items()):
            structure[name] = pth.tensor(KINDS[dtype], str(key), shape)
            storages[str(key)] = data
        def view(shape, offset, strides):
            return pth.tensor("FloatStorage", "s", shape, count=6,
                              offset=offset, strides=strides)
        structure["part"] = view((2,), 3, (1,))
        structure["transposed"] = view((3, 2), 0, (1, 3))
        structure["every other"] = view((3,), 1, (2,))
        structure["one"] = view((1, 1), 5, (9, 9))
        pth.write(self.path, structure, storages)
        _, written, _ = self.assert_converts()
        expected = {"part": [3, 4], "transposed": [0, 3, 1, 4, 2, 5],
                    "every other": [1, 3, 5], "one": [5]}
        for name, numbers in expected.items():
            self.assertEqual(written[name][2],
                             struct.pack(f"<{len(numbers)}f", *numbers), name)

    def test_takes_parameters_and_the_attributes_of_a_state_dict(self):
        model = self.small_model(4)
        structure = {}
        storages = {}
        for key, (name, (dtype, shape, data)) in enumerate(model.items()):
            structure[name] = pth.Call(
                pth.Global("torch._utils", "_rebuild_parameter"),
                (pth.tensor(KINDS[dtype], str(key), shape), True,
                 pth.ordered_dict()))
            storages[str(key)] = data
        pth.write(
            self.path,
            pth.Built(pth.ordered_dict(structure),
                      {"_metadata": pth.ordered_dict({"": {"version": 1}})}),
            storages, prefix="RWKV-x070/", byte_order=None)
        _, written, _ = self.assert_converts()
        self.assertEqual(written, model)

    def test_converts_the_golden_models_bit_for_bit(self):
        found = 0
        for case in ("rwkv7_tiny_real_blinkdl", "rwkv5_2_tiny_real_blinkdl"):
            folder = GOLDEN / case
            if not folder.exists():
                continue
            found += 1
            with self.subTest(case=case):
                tensors = read_safetensors(folder / "model.safetensors")
                self.write_model(tensors)
                config, written, _ = self.assert_converts()
                self.assertEqual(written, tensors)
                original = json.loads((folder / "config.json").read_text())
                for field, value in original.items():
                    if field != "_note":
                        self.assertEqual(config[field], value, field)
                self.check_logits(folder)
                shutil.rmtree(self.out)
        if found == 0:
            self.skipTest(f"{GOLDEN} has no RWKV models")

    def check_logits(self, folder):
        """The engine loads the folder and computes the published logits."""
        binaries = os.environ.get("REPRISE_BINARY_DIR")
        program = pathlib.Path(binaries or "/nonexistent") / "reprise-golden"
        if not program.exists():
            return
        shutil.copyfile(folder / "golden.safetensors",
                        self.out / "golden.safetensors")
        run = subprocess.run([program, self.out], capture_output=True,
                             text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_agrees_with_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("python3-torch is not installed")
        base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
        tensors = {
            "emb.weight": base.to(torch.bfloat16),
            "blocks.0.att.time_decay": base.t(),
            "blocks.0.att.time_first": torch.nn.Parameter(base[1:3, 2:5]),
            "half": base.half()[::2],
        }
        torch.save(tensors, self.path)
        _, written, _ = self.assert_converts()
        for name, tensor in tensors.items():
            data = tensor.detach().contiguous().view(-1)
            self.assertEqual(written[name][1], tuple(tensor.shape))
            self.assertEqual(
                written[name][2],
                bytes(data.view(torch.uint8).tolist()), name)


class FolderTest(ConvertTest):
    def test_copies_the_vocabulary(self):
        self.write_model(self.small_model())
        vocab = self.dir / "rwkv_vocab_v20230424.txt"
        vocab.write_text("1 'a' 1\n")
        _, _, out = self.assert_converts("--vocab", str(vocab))
        self.assertEqual((self.out / vocab.name).read_text(), "1 'a' 1\n")
        self.assertNotIn("Put the", out)

    def test_refuses_a_vocabulary_that_no_server_would_find(self):
        self.write_model(self.small_model())
        for name, word in (("vocab.txt", "rename"),
                           ("tokenizer.json", "no such file")):
            status, _, err = self.convert("--vocab", str(self.dir / name))
            self.assertEqual(status, 1)
            self.assertIn(word, err)
        self.assertFalse(self.out.exists())

    def test_refuses_a_folder_with_files(self):
        self.write_model(self.small_model())
        self.out.mkdir()
        (self.out / "kept").write_text("x")
        status, _, err = self.convert()
        self.assertEqual(status, 1)
        self.assertIn("is not empty", err)
        self.assertEqual([path.name for path in self.out.iterdir()], ["kept"])

    def test_names_a_file_that_is_not_there(self):
        status, _, err = self.convert()
        self.assertEqual(status, 1)
        self.assertIn("model.pth", err)

    def test_shows_progress(self):
        self.write_model(self.small_model())
        status, _, err = self.convert()
        self.assertEqual(status, 0)
        self.assertIn("100 %", err)

    def test_has_help(self):
        run = subprocess.run(
            [ROOT / "tools" / "convert_rwkv_pth.py", "--help"],
            capture_output=True, text=True, check=True)
        self.assertIn("MODEL.pth", run.stdout)
        self.assertIn("--vocab", run.stdout)


class HostileTest(ConvertTest):
    def write_value(self, value, storages=None):
        """A model of which one tensor is `value`."""
        model = self.small_model(4)
        structure = {"bad": value}
        storages = dict(storages or {"s": bytes(16)})
        for key, (name, (dtype, shape, data)) in enumerate(model.items()):
            structure[name] = pth.tensor(KINDS[dtype], str(key), shape)
            storages[str(key)] = data
        pth.write(self.path, structure, storages)

    def test_runs_no_code(self):
        marker = self.dir / "ran"
        command = f"touch {marker}"
        calls = {
            "os.system": pth.Call(pth.Global("os", "system"), (command,)),
            "posix.system": pth.Call(pth.Global("posix", "system"),
                                     (command,)),
            "builtins.eval": pth.Call(
                pth.Global("builtins", "eval"), (f"open({str(marker)!r}, 'w')",)),
            "builtins.getattr": pth.Call(
                pth.Global("builtins", "getattr"),
                (pth.Global("collections", "OrderedDict"), "fromkeys")),
            "torch.load": pth.Call(pth.Global("torch", "load"), ("x",)),
            # Attributes of what is allowed.
            "torch._utils._rebuild_tensor_v2.__globals__": pth.Global(
                "torch._utils", "_rebuild_tensor_v2.__globals__"),
            "collections.OrderedDict.fromkeys": pth.Global(
                "collections", "OrderedDict.fromkeys"),
            "torch._utils._rebuild_tensor": pth.Global(
                "torch._utils", "_rebuild_tensor"),
        }
        for name, value in calls.items():
            with self.subTest(name=name):
                self.write_value(value)
                self.assert_refused(name, "no code")
                self.assertFalse(marker.exists())

    def test_runs_no_code_of_real_pickles(self):
        marker = self.dir / "ran"

        class Evil:
            def __reduce__(self):
                return (os.system, (f"touch {marker}",))

        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with self.subTest(protocol=protocol):
                pth.write(self.path, pickle.dumps({"a": Evil()}, protocol), {})
                self.assert_refused("data.pkl")
                self.assertFalse(marker.exists())

    def test_refuses_instructions_that_torch_does_not_use(self):
        programs = {
            "INST": b"(ios\nsystem\n.",
            "OBJ": b"(cos\nsystem\no.",
            "EXT1": b"\x80\x02\x82\x01.",
            "NEWOBJ": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
            "BYTEARRAY8": b"\x80\x05\x96" + struct.pack("<Q", 1 << 50) + b".",
            "BINBYTES8": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 50) + b".",
            "LONG4": b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b".",
            "PERSID": b"Pstorage\n.",
        }
        for name, program in programs.items():
            with self.subTest(name=name):
                pth.write(self.path, program, {})
                self.assert_refused("data.pkl")

    def test_takes_no_memory_for_a_number(self):
        pth.write(self.path,
                  b"\x80\x02Nr" + struct.pack("<I", 0xFFFFFFFF) + b".", {})
        self.assert_refused("NoneType")

    def test_refuses_pickles_that_are_cut_off_anywhere(self):
        good = pth.dump(pth.ordered_dict({
            "emb.weight": pth.tensor("FloatStorage", "s", (2, 2))}))
        for size in range(len(good)):
            pth.write(self.path, good[:size], {"s": bytes(16)})
            self.assert_refused("data.pkl")

    def test_refuses_files_with_any_byte_of_the_pickle_changed_or_reads_them(
            self):
        good = pth.dump(pth.ordered_dict({
            "emb.weight": pth.tensor("FloatStorage", "s", (2, 2)),
            "blocks.0.att.time_decay": pth.tensor("FloatStorage", "s", (4,))}))
        for place in range(len(good)):
            for bit in (0, 3, 7):
                changed = bytearray(good)
                changed[place] ^= 1 << bit
                pth.write(self.path, bytes(changed), {"s": bytes(16)})
                status, _, err = self.convert("--quiet")
                self.assertIn(status, (0, 1), err)
                self.assertNotIn("Traceback", err)
                if self.out.exists():
                    shutil.rmtree(self.out)

    def test_refuses_sizes_that_do_not_fit(self):
        kind = "FloatStorage"
        cases = {
            "which is not 1000000000000 numbers": pth.tensor(
                kind, "s", (10**6, 10**6)),
            "which is not 5 numbers": pth.tensor(kind, "s", (5,)),
            "leaves its storage": pth.tensor(kind, "s", (5,), count=4),
            "offset 1 leaves": pth.tensor(kind, "s", (4,), offset=1),
            "leaves its storage of 4": pth.tensor(kind, "s", (2, 2),
                                                  strides=(3, 1)),
            "repeats": pth.tensor(kind, "s", (1 << 40, 4), count=4,
                                  strides=(0, 1)),
            "has no numbers": pth.tensor(kind, "s", (0, 4), count=4),
            "bad shape": pth.tensor(kind, "s", (-4,), count=4),
            "offset -1": pth.tensor(kind, "s", (4,), offset=-1),
            "strides (-1,)": pth.tensor(kind, "s", (4,), strides=(-1,)),
            "strides (1, 1)": pth.tensor(kind, "s", (4,), strides=(1, 1)),
            "strides 'x'": pth.tensor(kind, "s", (4,), strides="x"),
            "(1, 1, 1, 1, 1, 1, 1, 1, 4)": pth.tensor(
                kind, "s", (1,) * 8 + (4,)),
            "is not in the archive": pth.tensor(kind, "t", (4,)),
            "not in the archive": pth.tensor(kind, "../data.pkl", (4,)),
            "DoubleStorage": pth.tensor("DoubleStorage", "s", (2,)),
            "torch.Storage": pth.tensor("Storage", "s", (4,)),
        }
        for words, value in cases.items():
            with self.subTest(words=words):
                self.write_value(value)
                self.assert_refused(words)

    def test_refuses_a_storage_in_two_ways(self):
        self.write_value(pth.Raw(
            pth.dump(pth.tensor("FloatStorage", "s", (4,)))[2:-1] + b"0"
            + pth.dump(pth.tensor("HalfStorage", "s", (8,)))[2:-1]))
        self.assert_refused("data.pkl has the instruction 48")
        structure = {"a": pth.tensor("FloatStorage", "s", (4,)),
                     "b": pth.tensor("HalfStorage", "s", (8,))}
        pth.write(self.path, structure, {"s": bytes(16)})
        self.assert_refused("described in two ways")

    def test_refuses_many_views_of_one_storage(self):
        structure = {f"t{i}": pth.tensor("FloatStorage", "s", (4096,))
                     for i in range(100)}
        pth.write(self.path, structure, {"s": bytes(16384)})
        self.assert_refused("more than twice the file's")

    def test_refuses_what_is_no_tensor(self):
        for value, word in ((3, "int"), ("x", "str"), (None, "NoneType"),
                            ([1], "list"), ({"a": 1}, "dict"),
                            (pth.Global("torch", "FloatStorage"),
                             "_StorageClass")):
            with self.subTest(word=word):
                self.write_value(value)
                self.assert_refused(f"bad is a {word}, not a tensor")

    def test_refuses_a_storage_that_is_none(self):
        rebuild = pth.Global("torch._utils", "_rebuild_tensor_v2")
        self.write_value(pth.Call(rebuild, (3, 0, (1,), (1,), False, None)))
        self.assert_refused("in place of a storage")
        self.write_value(pth.Persistent(("module", "x")))
        self.assert_refused("a storage is described as")

    def test_sets_no_attributes_of_tensors(self):
        self.write_value(pth.Built(pth.tensor("FloatStorage", "s", (4,)),
                                   {"offset": 1000}))
        self.assert_refused("malformed")

    def test_refuses_bad_names(self):
        for name in ("", "x" * 513, "a\nb", "\x1b[31m", 3):
            with self.subTest(name=name):
                pth.write(self.path,
                          {name: pth.tensor("FloatStorage", "s", (4,))},
                          {"s": bytes(16)})
                self.assert_refused("has the name")

    def test_refuses_a_name_that_occurs_twice(self):
        item = pth.dump("a")[2:-1] + pth.dump(3)[2:-1]
        made = pth.dump(pth.ordered_dict())[2:-1]
        pth.write(self.path, b"\x80\x02" + made + b"(" + item * 2 + b"u.", {})
        self.assert_refused("'a' occurs twice")

    def test_refuses_other_files(self):
        files = {
            b"": "no zip archive",
            b"\x80\x04N.": "no zip archive",
            b"PK\x03\x04" + bytes(100): "no good zip archive",
            pickle.dumps(0x1950A86A20F9469CFC6C, 2): "torch before 1.6",
        }
        for data, words in files.items():
            with self.subTest(words=words):
                self.path.write_bytes(data)
                self.assert_refused(words)

    def test_refuses_archives_of_another_kind(self):
        model = self.small_model(4)
        self.write_model(model)
        whole = self.path.read_bytes()
        self.path.write_bytes(whole[:-30])
        self.assert_refused("no good zip archive")
        pth.write(self.path, {}, {"0": bytes(64)}, byte_order=b"big")
        self.assert_refused("byte order")
        pth.write(self.path, {"a": pth.tensor("FloatStorage", "s", (1000,))},
                  {"s": bytes(4000)}, compress=8)
        self.assert_refused("compressed")
        pth.write(self.path, pth.dump({}), {"data.pkl": pth.dump({})})
        self.assert_refused("2 files data.pkl")

    def test_refuses_bytes_that_changed(self):
        tensors = self.small_model(4)
        tensors["emb.weight"] = ("F32", (3, 4), b"findme__" * 6)
        self.write_model(tensors)
        data = self.path.read_bytes()
        self.path.write_bytes(data.replace(b"findme__", b"changed_", 1))
        self.assert_refused("checksum")


if __name__ == "__main__":
    unittest.main()
