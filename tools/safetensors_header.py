"""The header of a safetensors file, for writers with and without numpy.

The format: 8 bytes little-endian length, a JSON header padded with spaces,
then the tensors' bytes, one behind the other without holes. The padding makes
the data start at a multiple of 8.
"""

import json
import struct


def header(entries, metadata=None):
    """The first bytes of a file.

    entries: [(name, dtype, shape, number of bytes)] in the order of the data.
    Wide types should come first: then every tensor is aligned to its own
    element size as well, which some readers ask for.
    """
    fields = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, dtype, shape, size in entries:
        start, end = end, end + size
        fields[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
