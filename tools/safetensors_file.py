"""Reads and writes safetensors files, without the safetensors package."""

import json
import math
import struct

import numpy as np

import safetensors_header

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8"}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


def write(path, tensors, metadata=None):
    """Writes {name: numpy array}. Names are kept in the given order."""
    entries = [
        (name, NAMES[array.dtype], array.shape, array.nbytes)
        for name, array in tensors.items()
    ]
    with open(path, "wb") as file:
        file.write(safetensors_header.header(entries, metadata))
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read(path):
    """Returns {name: numpy array}; BF16 comes back as float32."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        at = 8 + length + entry["data_offsets"][0]
        count = math.prod(entry["shape"])
        if entry["dtype"] == "BF16":
            halves = np.frombuffer(data, "<u2", count, at)
            array = (halves.astype("<u4") << 16).view("<f4")
        else:
            array = np.frombuffer(data, DTYPES[entry["dtype"]], count, at)
        tensors[name] = array.reshape(entry["shape"])
    return tensors
