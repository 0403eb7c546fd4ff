"""Writes .pth files by hand, as torch.save does, and as it never would."""

import collections
import struct
import zipfile

ITEM_BYTES = {"FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2}


class Global(collections.namedtuple("Global", "module name")):
    """Something that a pickle names."""


class Call(collections.namedtuple("Call", "function arguments")):
    """The result of a call."""


class Persistent(collections.namedtuple("Persistent", "identity")):
    """Something that lies outside of the pickle."""


class Built(collections.namedtuple("Built", "value state")):
    """An object after its state was set."""


class Raw(bytes):
    """Instructions as they are."""


def dump(value):
    """The pickle of `value`, protocol 2."""
    return b"\x80\x02" + _dump(value) + b"."


def _dump(value):
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Global):
        return b"c%s\n%s\n" % (value.module.encode(), value.name.encode())
    if isinstance(value, Call):
        return _dump(value.function) + _dump(value.arguments) + b"R"
    if isinstance(value, Persistent):
        return _dump(value.identity) + b"Q"
    if isinstance(value, Built):
        return _dump(value.value) + _dump(value.state) + b"b"
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        if 0 <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        data = value.to_bytes(value.bit_length() // 8 + 1, "little",
                              signed=True)
        return b"\x8a" + bytes([len(data)]) + data
    if isinstance(value, str):
        data = value.encode()
        return b"X" + struct.pack("<I", len(data)) + data
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_dump, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_dump, value)) + b"e"
    if isinstance(value, dict):
        items = b"".join(_dump(k) + _dump(v) for k, v in value.items())
        return b"}(" + items + b"u"
    raise TypeError(value)


def ordered_dict(items=None):
    """An OrderedDict, as state_dict() makes them."""
    made = _dump(Call(Global("collections", "OrderedDict"), ()))
    return Raw(made + b"(" + b"".join(
        _dump(k) + _dump(v) for k, v in (items or {}).items()) + b"u")


def storage(kind, key, count):
    return Persistent(("storage", Global("torch", kind), key, "cpu", count))


def strides_of(shape):
    strides = []
    count = 1
    for size in reversed(shape):
        strides.insert(0, count)
        count *= size
    return tuple(strides)


def tensor(kind, key, shape, count=None, offset=0, strides=None):
    """A view of the storage `key`."""
    size = 1
    for dimension in shape:
        size *= dimension
    return Call(
        Global("torch._utils", "_rebuild_tensor_v2"),
        (storage(kind, key, size if count is None else count), offset,
         tuple(shape), strides_of(shape) if strides is None else strides,
         False, ordered_dict()))


def write(path, structure, storages, prefix="archive/", byte_order=b"little",
          compress=zipfile.ZIP_STORED):
    """`structure` as a value for dump, or bytes; storages: {key: bytes}."""
    pickled = structure if type(structure) is bytes else dump(structure)
    with zipfile.ZipFile(path, "w", compress) as archive:
        archive.writestr(prefix + "data.pkl", pickled)
        if byte_order is not None:
            archive.writestr(prefix + "byteorder", byte_order)
        for key, data in storages.items():
            archive.writestr(f"{prefix}data/{key}", data)
        archive.writestr(prefix + "version", b"3\n")
