"""store_lib.py - builds the rooms base and store as a shared library and calls them from the Python checks."""
import ctypes
import glob
import os
import subprocess
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 1000)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
                ("dim", ctypes.c_int64 * 8), ("offset", ctypes.c_int64), ("bytes", ctypes.c_int64),
                ("file", ctypes.c_int)]


class AdapterConfig(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("alpha", ctypes.c_double), ("dropout", ctypes.c_double),
                ("targets", ctypes.c_uint32), ("base_model", ctypes.c_char * 512), ("use_rslora", ctypes.c_bool)]


class Store:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "libstore.so")
        sources = glob.glob(os.path.join(ROOT, "src/base/*.c")) + glob.glob(os.path.join(ROOT, "src/store/*.c"))
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-w", "-shared", "-fPIC", "-pthread",
                        "-I" + os.path.join(ROOT, "src"), *sources, "-o", path, "-ljansson", "-lm"], check=True)
        self.lib = ctypes.CDLL(path)

    def call(self, name, *arguments):
        """Calls bool name(..., Err *e); a refusal becomes an exception."""
        function = getattr(self.lib, name)
        function.restype = ctypes.c_bool
        e = Err()
        if not function(*arguments, ctypes.byref(e)):
            raise RuntimeError(e.text.decode(errors="replace"))

    def write_safetensors(self, path, tensors):
        """tensors: a list of (name, dtype name, shape, bytes)."""
        rows = (Tensor * len(tensors))()
        for row, (name, dtype, shape, _) in zip(rows, tensors):
            row.name, row.dtype, row.rank = name.encode(), DTYPES.index(dtype), len(shape)
            for i, d in enumerate(shape):
                row.dim[i] = d
        writer = ctypes.c_void_p()
        self.call("st_write_begin", ctypes.byref(writer), path.encode(), rows, ctypes.c_int64(len(tensors)), None)
        for *_, data in tensors:
            self.call("st_write_data", writer, data, ctypes.c_int64(len(data)))
        self.call("st_write_end", writer)
