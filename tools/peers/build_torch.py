# Builds torch.cpp against the PyTorch of this Python. Usage: build_torch.py FOLDER
import pathlib
import sys

from torch.utils import cpp_extension

here = pathlib.Path(__file__).resolve().parent
cpp_extension.load(
    name="torch_peer",
    sources=[str(here / "torch.cpp")],
    extra_include_paths=[str(here)],
    extra_cflags=["-O3", "-DNDEBUG"],
    # The libraries that PyTorch's own need are found when the program starts.
    # One of them is used by nothing but its registration.
    extra_ldflags=["-pthread", "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"],
    build_directory=sys.argv[1],
    with_cuda=True,
    is_python_module=False,
    is_standalone=True,
)
