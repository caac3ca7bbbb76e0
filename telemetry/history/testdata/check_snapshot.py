"""Reads a memory snapshot and says what is in it.

    python3 check_snapshot.py [--viz MEMORY_VIZ.py] FILE

With PyTorch here, or its torch/cuda/_memory_viz.py named by --viz, PyTorch's
own functions read the snapshot: segsum, trace, memory, segments, trace_plot and
segment_plot. Without, only the rules below are checked. The last line is one
JSON object. The exit code is 1 if a rule is broken.
"""

import argparse
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
    """held is what is allocated at the end, by address."""
    live, freed, done = {}, {}, set()
    for e in trace:
        action, addr = e["action"], e.get("addr")
        if action in ("alloc", "free_requested", "free_completed"):
            for f in e["frames"]:
                f["name"], f["filename"], f["line"]
        if action == "alloc":
            if addr in live or addr in freed:
                broken.append(f"alloc at {addr:#x}, which is taken")
            live[addr] = e["size"]
            done.discard(addr)
        elif action == "free_requested":
            live.pop(addr, None)  # it may be older than the trace
            if addr in freed:
                broken.append(f"free of {addr:#x}, which is freed")
            freed[addr] = e["size"]
        elif action == "free_completed":
            if freed.pop(addr, None) is None and (addr in live or addr in done):  # or the trace is younger
                broken.append(f"free of {addr:#x} completed and not requested")
            done.add(addr)
        elif action == "oom":
            e["device_free"], e["size"]
        elif action != "snapshot" and not action.startswith("segment_"):
            broken.append(f"action {action}")
    for addr in live:
        if held.get(addr) != "active_allocated":
            broken.append(f"{addr:#x} is allocated and {held.get(addr)} in the segments")
    for addr in freed:
        if held.get(addr) != "active_pending_free":
            broken.append(f"{addr:#x} is freed and {held.get(addr)} in the segments")


def check(snapshot):
    broken, held = [], {}
    for s in snapshot["segments"]:
        at = s["address"]
        for b in s["blocks"]:
            if b["address"] != at or b["size"] <= 0:
                broken.append(f"block at {b['address']:#x} of {b['size']} bytes, expected at {at:#x}")
            if b["state"] not in STATES:
                broken.append(f"state {b['state']}")
            if b["state"] != "inactive":
                held[(s["device"], b["address"])] = b["state"]
            at += b["size"]
        if at != s["address"] + s["total_size"]:
            broken.append(f"the blocks of segment {s['address']:#x} end at {at:#x}")
        active = sum(b["size"] for b in s["blocks"] if b["state"] != "inactive")
        if active != s["active_size"]:
            broken.append(f"segment {s['address']:#x} has {active} active bytes and says {s['active_size']}")
    for device, trace in enumerate(snapshot["device_traces"]):
        check_entries(trace, {a: state for (d, a), state in held.items() if d == device}, broken)
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
    args.add_argument("file")
    args = args.parse_args()
    with open(args.file, "rb") as f:
        data = f.read()
    snapshot = pickle.loads(data)
    broken = check(snapshot)
    unknown = sorted({op.name for op, _, _ in pickletools.genops(data)} - PAGE_OPCODES)
    if unknown:
        broken.append(f"the page does not know the opcodes {unknown}")
    viz = load_viz(args.viz)
    report = {
        "actions": [Counter(e["action"] for e in t) for t in snapshot["device_traces"]],
        "segments": len(snapshot["segments"]),
        "allocated": sum(s["allocated_size"] for s in snapshot["segments"]),
        "active": sum(s["active_size"] for s in snapshot["segments"]),
        "frames": max((len(b["frames"]) for s in snapshot["segments"] for b in s["blocks"]), default=0),
        "categories": sorted({e["category"] for t in snapshot["device_traces"] for e in t if "category" in e}),
        "broken": broken[:10],
        "pytorch": read_by_pytorch(viz, snapshot) if viz else None,
    }
    print(json.dumps(report))
    sys.exit(1 if broken else 0)


main()
