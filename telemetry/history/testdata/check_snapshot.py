"""Reads memory snapshots and says what is in them.

    python3 check_snapshot.py [--viz MEMORY_VIZ.py] FILE...

With PyTorch here, or its torch/cuda/_memory_viz.py named by --viz, PyTorch's
own functions read each snapshot: segsum, trace, memory, segments, trace_plot and
segment_plot. Without, only the rules below are checked. The output is a JSON
object a line, one for each file. The exit code is 1 if a rule is broken.
"""

import argparse
import bisect
import importlib.util
import json
import pickle
import pickletools
import sys
from collections import Counter

# What the machine of the memory_viz page knows.
PAGE_OPCODES = {
    "PROTO", "APPEND", "APPENDS", "LIST", "TUPLE", "NEWFALSE", "NEWTRUE", "NONE", "BINGET", "BININT", "BININT1",
    "BININT2", "EMPTY_DICT", "EMPTY_LIST", "FRAME", "LONG1", "LONG_BINGET", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT",
    "SETITEMS", "SETITEM", "DICT", "SHORT_BINUNICODE", "BINUNICODE", "STOP", "EMPTY_TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "BINFLOAT",
}
STATES = {"active_allocated", "active_pending_free", "inactive"}


def check_entries(trace, held, broken):
    """Goes back from the blocks that are held at the end, as the page does. held has address, size and state."""
    at, order = {addr: (size, state) for addr, size, state in held}, sorted(addr for addr, _, _ in held)

    def overlaps(addr, size):
        i = bisect.bisect_left(order, addr)
        return i < len(order) and order[i] < addr + size or i > 0 and order[i - 1] + at[order[i - 1]][0] > addr

    for e in reversed(trace):
        action, addr = e["action"], e.get("addr")
        if action in ("alloc", "free_requested", "free_completed"):
            for f in e["frames"]:
                f["name"], f["filename"], f["line"]
        if action == "alloc":
            if at.get(addr) != (e["size"], "active_allocated"):
                broken.append(f"alloc of {e['size']} bytes at {addr:#x}, where {at.get(addr)} is after it")
            if at.pop(addr, None):
                order.remove(addr)
        elif action == "free_requested":
            if at.get(addr) != (e["size"], "active_pending_free"):
                broken.append(f"free of {e['size']} bytes at {addr:#x}, where {at.get(addr)} is after it")
            if addr in at:
                at[addr] = (e["size"], "active_allocated")
        elif action == "free_completed":
            if overlaps(addr, e["size"]):
                broken.append(f"free of {e['size']} bytes at {addr:#x} completed, where another block is before it")
                continue
            at[addr] = (e["size"], "active_pending_free")
            bisect.insort(order, addr)
        elif action == "oom":
            e["device_free"], e["size"]
        elif action != "snapshot" and not action.startswith("segment_"):
            broken.append(f"action {action}")


def check(snapshot):
    broken, held = [], []
    for s in snapshot["segments"]:
        at = s["address"]
        for b in s["blocks"]:
            if b["address"] != at or b["size"] <= 0:
                broken.append(f"block at {b['address']:#x} of {b['size']} bytes, expected at {at:#x}")
            if b["state"] not in STATES:
                broken.append(f"state {b['state']}")
            if b["state"] != "inactive":
                held.append((s["device"], b["address"], b["size"], b["state"]))
            at += b["size"]
        if at != s["address"] + s["total_size"]:
            broken.append(f"the blocks of segment {s['address']:#x} end at {at:#x}")
        active = sum(b["size"] for b in s["blocks"] if b["state"] != "inactive")
        if active != s["active_size"]:
            broken.append(f"segment {s['address']:#x} has {active} active bytes and says {s['active_size']}")
    for device, trace in enumerate(snapshot["device_traces"]):
        check_entries(trace, [block for d, *block in held if d == device], broken)
    categories = {e["category"] for t in snapshot["device_traces"] for e in t if "category" in e}
    if categories and "unknown" not in categories:
        broken.append("no category unknown")
    return broken


def load_viz(path):
    if path is None:
        try:
            from torch.cuda import _memory_viz
        except ImportError:
            return None
        return _memory_viz
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_by_pytorch(viz, snapshot):
    def lines(text):
        return [line for line in text.splitlines() if line]

    plain = lambda text: text  # noqa: E731, in place of a flame graph
    return {
        "segsum": [line for line in lines(viz.segsum(snapshot)) if line.startswith("total_") or line.startswith("segments:")],
        "trace": len(lines(viz.trace(snapshot))),
        "memory": len(lines(viz.memory(snapshot, format_flamegraph=plain))),
        "segments": len(lines(viz.segments(snapshot, format_flamegraph=plain))),
        "trace_plot": len(viz.trace_plot(snapshot)),
        "segment_plot": len(viz.segment_plot(snapshot)),
    }


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--viz")
    args.add_argument("file", nargs="+")
    args = args.parse_args()
    viz = load_viz(args.viz)
    reports = [report(file, viz) for file in args.file]
    for r in reports:
        print(json.dumps(r))
    sys.exit(1 if any(r["broken"] for r in reports) else 0)


def report(file, viz):
    with open(file, "rb") as f:
        data = f.read()
    snapshot = pickle.loads(data)
    broken = check(snapshot)
    unknown = sorted({op.name for op, _, _ in pickletools.genops(data)} - PAGE_OPCODES)
    if unknown:
        broken.append(f"the page does not know the opcodes {unknown}")
    return {
        "file": file,
        "actions": [Counter(e["action"] for e in t) for t in snapshot["device_traces"]],
        "segments": len(snapshot["segments"]),
        "allocated": sum(s["allocated_size"] for s in snapshot["segments"]),
        "active": sum(s["active_size"] for s in snapshot["segments"]),
        "frames": max((len(b["frames"]) for s in snapshot["segments"] for b in s["blocks"]), default=0),
        "categories": sorted({e["category"] for t in snapshot["device_traces"] for e in t if "category" in e}),
        "broken": broken[:10],
        "pytorch": read_by_pytorch(viz, snapshot) if viz else None,
    }


main()
