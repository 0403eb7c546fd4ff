#!/usr/bin/env python3
"""Writes the snapshots of this folder, from docs/snapshot_format.md alone.

It shares no code with the server's codec, so the two check each other. Blobs
of old versions are never written again: a version keeps the bytes it had.

  tests/testdata/snapshots/make_snapshots.py [FOLDER]
"""
import pathlib
import struct
import sys

CONTEXT = 0
MODEL, TOKENIZER = 0x1122334455667788, 0x99AABBCCDDEEFF00


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def field_header(name, shape):
    return (struct.pack("<I", len(name)) + name.encode() +
            struct.pack(f"<I{len(shape)}q", len(shape), *shape))


def snapshot_v1(fields, revision=0, position=0, pending=-1, draws=0,
                occurrences=(), window=(), window_limit=0, text=b""):
    """`fields` lists (name, shape, values[, growth]).

    The shape is what is in use; growth is CONTEXT or the rows of a window."""
    layout = fnv1a(b"".join(
        field_header(n, [-g[0]] + s[1:] if g else s)
        for n, s, _, *g in fields))
    body = struct.pack("<QQQ", MODEL, layout, TOKENIZER)
    body += struct.pack("<QqiI", revision, position, pending, 0)
    body += struct.pack("<QIIIII", draws, len(occurrences), len(window),
                        window_limit, len(text), len(fields))
    for token, weight, at in occurrences:
        body += struct.pack("<ifq", token, weight, at)
    body += struct.pack(f"<{len(window)}i", *window) + text
    for name, shape, values, *_ in fields:
        body += field_header(name, shape)
        body += struct.pack(f"<{len(values)}f", *values)
    total = 4 + 4 + 8 + len(body) + 4
    blob = b"RPRS" + struct.pack("<IQ", 1, total) + body
    return blob + struct.pack("<I", crc32c(blob))


BLOBS = {
    "v1_empty.rprs": snapshot_v1([("0.kv", [2, 2], [0, 0, 0, 0])]),
    "v1_tiny.rprs": snapshot_v1(
        [("0.kv", [2, 2], [1, -2, 0.5, 0])], revision=1, position=1,
        pending=7, draws=1, occurrences=[(7, 1.5, 1)], window=[7],
        window_limit=4, text=b"\xe2\x82"),
    # Numbers at the edges of f32, fields that leave gaps in the slot.
    "v1_full.rprs": snapshot_v1(
        [("0.recurrent", [2, 3, 1], [1, 2, 3, 4, 5, 6]),
         ("0.normaliser", [3], [-0.0, 2.0**-149, (2 - 2.0**-23) * 2.0**127]),
         ("10.scale", [], [-0.25])],
        revision=2**64 - 1, position=2**40, pending=255, draws=2**63,
        occurrences=[(0, 0.0, 0), (13, 0.75, 2**40 - 1), (255, 3.0, 2**40)],
        window=[13, 0, 255], window_limit=65536, text=b"\xf0\x9f\x8d"),
    # Three tokens: all of them in a field that grows with the context, all in
    # a window of 5, the latest two in one of 2 (the third in row 2 % 2).
    "v1_growing.rprs": snapshot_v1(
        [("0.kv", [2], [1, 2]),
         ("1.attn_k", [3, 1, 2], [1, 2, 3, 4, 5, 6], CONTEXT),
         ("1.attn_v", [3, 1, 2], [-1, -2, -3, -4, -5, -6], CONTEXT),
         ("2.attn_k", [3, 1], [10, 20, 30], 5),
         ("3.attn_k", [2, 1], [30, 20], 2)],
        revision=2, position=3, pending=9, draws=1, window_limit=0),
}

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent)
    for file_name, blob in BLOBS.items():
        (folder / file_name).write_bytes(blob)
        print(f"{file_name}: {len(blob)} bytes")
