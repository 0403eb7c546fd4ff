"""Reads the tensors of a .pth file that torch.save wrote, without torch.

Such a file is a zip archive: NAME/data.pkl is a pickle of the structure, and
NAME/data/KEY holds the bytes of one storage, uncompressed. A tensor is a view
(offset, shape, strides) of a storage.

A pickle is a program, and one from a stranger may do anything. Here it can
make dictionaries, lists and numbers, and describe tensors; whatever else it
asks for is refused by name. Everything that it says about sizes is checked
against the file before memory is taken for it.

The format is that of torch/serialization.py since torch 1.6.
"""

import io
import math
import os
import pickle
import struct
import typing
import zipfile
import zlib

MAX_PICKLE_BYTES = 16 << 20  # 14 billion parameters need about 1 MB
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 8
MAX_NAME_BYTES = 512
CHUNK = 1 << 22

# torch's class of storage: (dtype as safetensors calls it, bytes of a number).
STORAGES = {
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
}
# Known, and refused with a clearer message than an unknown class.
OTHER_STORAGES = {
    "DoubleStorage", "LongStorage", "IntStorage", "ShortStorage",
    "CharStorage", "ByteStorage", "BoolStorage", "ComplexFloatStorage",
    "ComplexDoubleStorage", "UntypedStorage",
}

# How a file from before torch 1.6 begins: a pickle of its magic number.
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class Refused(Exception):
    """The file is not one that this module reads; str() says why."""


class Storage(typing.NamedTuple):
    dtype: str
    item_bytes: int
    entry: zipfile.ZipInfo
    count: int  # numbers in it


class Tensor(typing.NamedTuple):
    storage: Storage
    offset: int  # of the first number, in numbers
    shape: tuple
    strides: tuple  # in numbers

    @property
    def dtype(self):
        return self.storage.dtype

    @property
    def num_bytes(self):
        return math.prod(self.shape) * self.storage.item_bytes

    def is_contiguous(self):
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


class Checkpoint:
    """An open file. Its `tensors` are {name: Tensor}."""

    def __init__(self, path):
        """Raises Refused, and OSError if the file cannot be read."""
        self._file = open(path, "rb")
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._zip = _open_zip(self._file)
            self.tensors = _check_structure(self._load_structure())
            self._check_total()
        except BaseException:
            self._file.close()
            raise

    def close(self):
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def chunks(self, tensor):
        """The bytes of `tensor` in row order, piece by piece.

        Raises Refused if the bytes of a whole storage differ from their
        checksum.
        """
        storage = tensor.storage
        start = self._data_start(storage.entry)
        item = storage.item_bytes
        if tensor.is_contiguous():
            whole = tensor.num_bytes == storage.count * item
            yield from self._contiguous(
                start + tensor.offset * item, tensor.num_bytes,
                storage.entry if whole else None)
        else:
            yield from self._strided(tensor, start)

    def _load_structure(self):
        pickles = [name for name in self._zip.namelist()
                   if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Refused(f"it has {len(pickles)} files data.pkl, not one")
        prefix = pickles[0][: -len("data.pkl")]
        self._check_byte_order(prefix)
        data = self._small_file(pickles[0], MAX_PICKLE_BYTES)
        return _Unpickler(data, self._zip, prefix).run()

    def _check_byte_order(self, prefix):
        name = prefix + "byteorder"
        if name in self._zip.namelist():
            order = self._small_file(name, 64)
            if order != b"little":
                raise Refused(f"its byte order is {order!r}, not little")

    def _small_file(self, name, limit):
        entry = self._zip.getinfo(name)
        if entry.file_size > limit:
            raise Refused(
                f"{name} has {entry.file_size} bytes (at most {limit})")
        start = self._data_start(entry)
        return b"".join(self._contiguous(start, entry.file_size, entry))

    def _data_start(self, entry):
        """Where the bytes of `entry` begin in the file.

        Read by hand and not through zipfile, so that a part can be read
        without what comes before it.
        """
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise Refused(f"{entry.filename} is compressed or encrypted, "
                          "which torch.save never does")
        self._file.seek(entry.header_offset)
        header = self._file.read(30)
        if len(header) != 30 or header[:4] != b"PK\x03\x04":
            raise Refused(f"{entry.filename} has no header in the archive")
        name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
        start = entry.header_offset + 30 + name_bytes + extra_bytes
        if start + entry.file_size > self._size:
            raise Refused(f"{entry.filename} is cut off")
        return start

    def _contiguous(self, start, size, checked_entry):
        """`size` bytes; their checksum must be that of `checked_entry`."""
        checksum = 0
        self._file.seek(start)
        while size > 0:
            chunk = self._file.read(min(size, CHUNK))
            if not chunk:
                raise Refused("it is cut off")
            checksum = zlib.crc32(chunk, checksum)
            size -= len(chunk)
            # Whoever takes the chunk may read other parts meanwhile.
            place = self._file.tell()
            yield chunk
            self._file.seek(place)
        if checked_entry is not None and checksum != checked_entry.CRC:
            raise Refused(f"{checked_entry.filename} is damaged: "
                          "its checksum differs")

    def _strided(self, tensor, start):
        item = tensor.storage.item_bytes
        last = _last_index(tensor)
        span = b"".join(self._contiguous(
            start + tensor.offset * item,
            (last - tensor.offset + 1) * item, None))
        numbers = memoryview(span).cast({2: "H", 4: "I"}[item])
        yield from _rows(numbers, 0, tensor.shape, tensor.strides)

    def _check_total(self):
        """Views of one storage under many names could fill any disk.

        Tied weights are two names for one storage.
        """
        total = sum(tensor.num_bytes for tensor in self.tensors.values())
        if total > 2 * self._size:
            raise Refused(f"its tensors together have {total} bytes, more "
                          f"than twice the file's {self._size}")


def _open_zip(file):
    begin = file.read(512)
    if begin.startswith(LEGACY_MAGIC):
        raise Refused(
            "it is in the format of torch before 1.6, which is not supported; "
            "with any later torch, torch.save(torch.load(OLD, "
            "weights_only=True), NEW) writes the current one")
    if begin[:4] != b"PK\x03\x04":
        raise Refused("it is no zip archive, which torch.save writes")
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError,
            struct.error) as error:
        raise Refused(f"it is no good zip archive: {error}") from None


def _rows(numbers, at, shape, strides):
    """The bytes of a view, its innermost rows one by one."""
    if not shape:
        yield numbers[at : at + 1].tobytes()
    elif len(shape) == 1:
        end = at + (shape[0] - 1) * strides[0] + 1
        yield numbers[at : end : strides[0]].tobytes()
    else:
        for i in range(shape[0]):
            yield from _rows(numbers, at + i * strides[0], shape[1:],
                             strides[1:])


def _last_index(tensor):
    return tensor.offset + sum(
        (size - 1) * stride
        for size, stride in zip(tensor.shape, tensor.strides))


class _Dict(dict):
    """What an OrderedDict of the file becomes.

    A state_dict carries its modules' versions as an attribute: ignored.
    """

    __slots__ = ()

    def __setitem__(self, key, value):
        if key in self:
            raise Refused(f"the name {key!r:.80} occurs twice")
        super().__setitem__(key, value)

    def __setstate__(self, state):
        pass


class _StorageClass(typing.NamedTuple):
    name: str


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _rebuild_tensor(storage, offset, shape, strides, *_):
    if not isinstance(storage, Storage):
        raise Refused("a tensor has something else in place of a storage")
    tuples = isinstance(shape, tuple) and isinstance(strides, tuple)
    if not tuples or len(shape) != len(strides) or (
            len(shape) > MAX_DIMENSIONS) or not all(
                map(_is_count, (offset, *shape, *strides))):
        raise Refused(f"a tensor has a bad shape: {shape!r:.80}, strides "
                      f"{strides!r:.80}, offset {offset!r:.80}")
    if 0 in shape:
        raise Refused(f"a tensor of shape {shape} has no numbers")
    tensor = Tensor(storage, offset, shape, strides)
    if _last_index(tensor) >= storage.count:
        raise Refused(
            f"a tensor of shape {shape}, strides {strides}, offset {offset} "
            f"leaves its storage of {storage.count} numbers")
    if any(size > 1 and stride == 0 for size, stride in zip(shape, strides)) or (
            math.prod(shape) > storage.count):
        raise Refused(f"a tensor of shape {shape}, strides {strides} repeats "
                      "numbers of its storage")
    return tensor


def _rebuild_parameter(tensor, *_):
    if not isinstance(tensor, Tensor):
        raise Refused("a parameter has something else in place of a tensor")
    return tensor


# All that a pickle may name.
_ALLOWED = {
    ("collections", "OrderedDict"): _Dict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): _StorageClass(name)
       for name in (*STORAGES, *OTHER_STORAGES)},
}


# What torch.save uses of the language that pickles are written in. Left out
# are, among others, the instructions that make objects of classes, and those
# that take memory for as many bytes as a number says.
_OPCODES = (
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE",
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINSTRING",
    "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE", "TUPLE", "TUPLE1",
    "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT",
    "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET",
    "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID",
)


class _Dispatch(dict):
    def __missing__(self, opcode):
        raise Refused(f"data.pkl has the instruction {opcode}, which torch.save "
                      "does not use")


# Not the faster pickle.Unpickler: there LONG_BINPUT takes memory for as many
# objects as a number says.
class _Unpickler(pickle._Unpickler):
    dispatch = _Dispatch({
        getattr(pickle, name)[0]:
            pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
        for name in _OPCODES
    })

    def __init__(self, data, archive, prefix):
        super().__init__(io.BytesIO(data))
        self._archive = archive
        self._prefix = prefix
        self._storages = {}

    def run(self):
        try:
            return self.load()
        except Refused:
            raise
        except Exception as error:  # whatever a bad program can cause
            raise Refused(f"data.pkl is malformed: {type(error).__name__}: "
                          f"{error!s:.200}") from None

    def find_class(self, module, name):
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise Refused(
                f"data.pkl asks for {module}.{name}"[:200] + ", which is no "
                "tensor; only weights are read, no code") from None

    def persistent_load(self, pid):
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise Refused(f"a storage is described as {pid!r:.120}")
        _, kind, key, _, count = pid
        if not isinstance(kind, _StorageClass) or not isinstance(key, str):
            raise Refused(f"a storage is described as {pid!r:.120}")
        if kind.name not in STORAGES:
            raise Refused(f"a tensor is of the type torch.{kind.name}; only "
                          f"{', '.join(STORAGES)} are supported")
        if key not in self._storages:
            self._storages[key] = self._storage(kind.name, key, count)
        storage = self._storages[key]
        if (storage.dtype, storage.count) != (STORAGES[kind.name][0], count):
            raise Refused(f"storage {key:.80} is described in two ways")
        return storage

    def _storage(self, kind, key, count):
        dtype, item_bytes = STORAGES[kind]
        try:
            entry = self._archive.getinfo(f"{self._prefix}data/{key}")
        except KeyError:
            raise Refused(f"storage {key:.80} is not in the archive") from None
        if not _is_count(count) or entry.file_size != count * item_bytes:
            raise Refused(f"storage {key:.80} has {entry.file_size} bytes, "
                          f"which is not {count!r:.40} numbers of {dtype}")
        return Storage(dtype, item_bytes, entry, count)


def _check_structure(structure):
    if not isinstance(structure, dict):
        raise Refused(f"it holds a {type(structure).__name__}, not tensors by "
                      "name")
    if not 1 <= len(structure) <= MAX_TENSORS:
        raise Refused(f"it has {len(structure)} tensors, not 1 to "
                      f"{MAX_TENSORS}")
    for name, value in structure.items():
        if not isinstance(name, str) or not (
                1 <= len(name.encode("utf-8", "surrogatepass"))
                <= MAX_NAME_BYTES) or not name.isprintable():
            raise Refused(f"a tensor has the name {name!r:.120}")
        if not isinstance(value, Tensor):
            raise Refused(f"{name} is a {type(value).__name__}, not a tensor")
    return structure
