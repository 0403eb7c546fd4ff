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


def layout_of(fields):
    return fnv1a(b"".join(
        field_header(n, [-g[0]] + s[1:] if g else s)
        for n, s, _, *g in fields))


def bf16(value):
    """The nearest of the numbers that an f32 with 16 bits less can be, the
    even one of two; the largest one for what is larger."""
    def number(bits):
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    sign = 0x8000 if struct.pack(">f", value)[0] & 0x80 else 0
    best = min(range(0x7F80), key=lambda bits: (
        abs(number(bits) - abs(value)), bits % 2))
    return struct.pack("<H", sign | best)


def content(fields, encoding, revision=0, position=0, pending=-1, draws=0,
            occurrences=(), window=(), window_limit=0, text=b""):
    """From the revision to the last field. `encoding` is the bytes that stand
    behind the pending token in version 1; in version 2, the name of a type.

    `fields` lists (name, shape, values[, growth]). The shape is what is in
    use; growth is CONTEXT or the rows of a window."""
    body = struct.pack("<Qqi", revision, position, pending)
    if isinstance(encoding, bytes):
        body += encoding
    body += struct.pack("<QIIIII", draws, len(occurrences), len(window),
                        window_limit, len(text), len(fields))
    for token, weight, at in occurrences:
        body += struct.pack("<ifq", token, weight, at)
    body += struct.pack(f"<{len(window)}i", *window) + text
    for name, shape, values, *_ in fields:
        body += field_header(name, shape)
        if encoding == "bf16":
            body += b"".join(bf16(value) for value in values)
        else:
            body += struct.pack(f"<{len(values)}f", *values)
    return body


def sealed(version, fields, rest):
    body = struct.pack("<QQQ", MODEL, layout_of(fields), TOKENIZER) + rest
    total = 4 + 4 + 8 + len(body) + 4
    blob = b"RPRS" + struct.pack("<IQ", version, total) + body
    return blob + struct.pack("<I", crc32c(blob))


def snapshot_v1(fields, **record):
    return sealed(1, fields, content(fields, struct.pack("<I", 0), **record))


def zstd_frame(data):
    """RFC 8878, by hand: a run of equal bytes at the end as an RLE block, what
    stands before it as a raw one; the content's size in four bytes."""
    run = len(data) - len(data.rstrip(data[-1:]))
    frame = struct.pack("<IBI", 0xFD2FB528, 0xA0, len(data))
    raw = data[:len(data) - run]
    for last, kind, size, block in ((0, 0, len(raw), raw),
                                    (1, 1, run, data[-1:])):
        frame += struct.pack("<I", last | kind << 1 | size << 3)[:3] + block
    return frame


def snapshot_v2(fields, encoding, zstd, **record):
    body = content(fields, encoding, **record)
    header = struct.pack("<IIQ", ["f32", "bf16"].index(encoding), int(zstd),
                         len(body))
    return sealed(2, fields, header + (zstd_frame(body) if zstd else body))


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
    # Numbers that bf16 rounds: up, down, both kinds of ties, to zero, and
    # to its largest.
    "v2_bf16.rprs": snapshot_v2(
        [("0.kv", [2, 4], [1.0, 0.1, -2.3, 1 + 2.0**-8, 1 + 3 * 2.0**-8,
                           -(2.0**-149), (2 - 2.0**-23) * 2.0**127, -0.0]),
         ("1.attn_k", [2, 1], [0.25, 1 / 3], CONTEXT)],
        "bf16", False, revision=3, position=2, pending=8, draws=4,
        occurrences=[(8, 0.1, 2)], window=[1, 8], window_limit=2, text=b"\xc3"),
    "v2_zstd.rprs": snapshot_v2(
        [("0.kv", [2, 2], [1, -2, 0.5, 0]), ("1.kv", [8, 8], [0] * 64)],
        "f32", True, revision=1, position=1, pending=7, draws=1),
    "v2_bf16_zstd.rprs": snapshot_v2(
        [("0.kv", [2, 2], [1, -2, 0.1, 0]), ("1.kv", [8, 8], [0] * 64)],
        "bf16", True, revision=1, position=1, pending=7, draws=1),
}

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent)
    for file_name, blob in BLOBS.items():
        (folder / file_name).write_bytes(blob)
        print(f"{file_name}: {len(blob)} bytes")
