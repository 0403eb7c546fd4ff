#!/usr/bin/env python3
"""Writes the sealed snapshots of this folder, from docs/export.md, FIPS 197
and NIST SP 800-38D alone.

It shares no code and no library with the server, so the two check each other.
Seals of old versions are never written again.

  tests/testdata/seals/make_seals.py [FOLDER]
"""
import hashlib
import hmac
import pathlib
import struct
import sys

KEYS = {
    "gcm-key": (1, bytes(range(32))),
    "hmac-key": (2, bytes(range(255, 223, -1))),
}
PAYLOAD = b"What is sealed is no business of the seal's: " + bytes(range(40))


# ---- AES-256, block by block ------------------------------------------------

def times_x(a):
    return (a << 1 ^ (0x11B if a & 0x80 else 0)) & 0xFF


def make_sbox():
    sbox, p, q = [0] * 256, 1, 1
    while True:
        p ^= times_x(p)  # times 3
        for shift in (1, 2, 4):
            q ^= q << shift
        q = (q & 0xFF) ^ (0x09 if q & 0x80 else 0)  # divided by 3
        rotated = [(q << r | q >> 8 - r) & 0xFF for r in range(5)]
        value = 0x63
        for r in rotated:
            value ^= r
        sbox[p] = value
        if p == 1:
            break
    sbox[0] = 0x63
    return sbox


SBOX = make_sbox()


def expand_key(key):
    words = [list(key[i:i + 4]) for i in range(0, 32, 4)]
    constant = 1
    for i in range(8, 60):
        word = list(words[-1])
        if i % 8 == 0:
            word = [SBOX[b] for b in word[1:] + word[:1]]
            word[0] ^= constant
            constant = times_x(constant)
        elif i % 8 == 4:
            word = [SBOX[b] for b in word]
        words.append([a ^ b for a, b in zip(word, words[i - 8])])
    return [sum(words[i:i + 4], []) for i in range(0, 60, 4)]


def mix(column):
    total = column[0] ^ column[1] ^ column[2] ^ column[3]
    return [c ^ total ^ times_x(c ^ column[(i + 1) % 4])
            for i, c in enumerate(column)]


def aes_block(rounds, block):
    state = [a ^ b for a, b in zip(block, rounds[0])]
    for number, round_key in enumerate(rounds[1:], 1):
        state = [SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if number < 14:
            state = sum((mix(state[i:i + 4]) for i in range(0, 16, 4)), [])
        state = [a ^ b for a, b in zip(state, round_key)]
    return bytes(state)


# ---- GCM --------------------------------------------------------------------

def multiply(x, y):
    product = 0
    for i in range(127, -1, -1):
        if x >> i & 1:
            product ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product


def padded(data):
    return data + bytes(-len(data) % 16)


def aes_256_gcm(key, nonce, extra, data):
    """What is encrypted, and the tag."""
    rounds = expand_key(key)
    stream = b"".join(
        aes_block(rounds, nonce + struct.pack(">I", 2 + i))
        for i in range((len(data) + 15) // 16))
    cipher = bytes(a ^ b for a, b in zip(data, stream))
    h = int.from_bytes(aes_block(rounds, bytes(16)), "big")
    hashed = padded(extra) + padded(cipher) + struct.pack(
        ">QQ", 8 * len(extra), 8 * len(cipher))
    digest = 0
    for i in range(0, len(hashed), 16):
        digest = multiply(
            digest ^ int.from_bytes(hashed[i:i + 16], "big"), h)
    mask = aes_block(rounds, nonce + struct.pack(">I", 1))
    return cipher, bytes(
        a ^ b for a, b in zip(digest.to_bytes(16, "big"), mask))


# ---- Seals ------------------------------------------------------------------

def seal(key_id, nonce):
    algorithm, key = KEYS[key_id]
    names = b"".join(struct.pack("<I", len(name)) + name for name in
                     (key_id.encode(), b"tenant-1", b"session-1"))
    header = b"RPSE" + struct.pack(
        "<IIIQQQqq", 1, 68 + len(names), algorithm, len(PAYLOAD),
        0x1122334455667788, 7, 1_700_000_000_000, 1_700_000_060_000)
    header += nonce + names
    if algorithm == 1:
        cipher, tag = aes_256_gcm(key, nonce, header, PAYLOAD)
        return header + cipher + tag
    return header + PAYLOAD + hmac.new(
        key, header + PAYLOAD, hashlib.sha256).digest()


def check():
    """The last test case of the paper that GCM was proposed in."""
    cipher, tag = aes_256_gcm(
        bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2),
        bytes.fromhex("cafebabefacedbaddecaf888"),
        bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
        bytes.fromhex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"))
    assert cipher.hex().startswith("522dc1f099567d07f47f37a32a84427d"), cipher
    assert tag.hex() == "76fc6ece0f4e1768cddf8853bb2d551b", tag


if __name__ == "__main__":
    check()
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent)
    (folder / "v1_gcm.rpse").write_bytes(seal("gcm-key", bytes(range(12))))
    (folder / "v1_hmac.rpse").write_bytes(seal("hmac-key", bytes(12)))
