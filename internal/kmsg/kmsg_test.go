package kmsg

import (
	"strings"
	"testing"
	"time"
)

const device = "0000:3b:00.0"

func TestOnlyXidsOfTheDeviceThatTheKernelWroteAreTaken(t *testing.T) {
	for name, c := range map[string]struct {
		record      string
		number, pid int // number 0: none
	}{
		"of a process":             {"4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=prog, Ch 00000008, intr 00000000. MMU Fault", 31, 1234},
		"of a quoted process":      {"4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 13, pid='1234', name=prog, Graphics Exception", 13, 1234},
		"of one that is not known": {"4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 45, pid='<unknown>', name=<unknown>, Ch 00000010", 45, 0},
		"of the device":            {"2,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n", 79, 0},
		"of a MIG instance":        {"4,7,1500000,c;NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:00): 94, pid=9, name=x, Contained", 94, 9},
		"of an old driver":         {"4,7,1500000,-,caller=T1;NVRM: Xid (0000:3B:00): 14, Channel 00000001", 14, 0},
		"of another device":        {"4,7,1500000,-;NVRM: Xid (PCI:0000:3c:00): 31, pid=1234, name=prog", 0, 0},
		"that a program wrote":     {"12,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 0, 0},
		"in a program's name":      {"6,7,1500000,-;NVRM: Xid (PCI:[77]: segfault at 0 ip 0 sp 0 error 4", 0, 0},
		"later in a line":          {"6,7,1500000,-;x NVRM: Xid (PCI:0000:3b:00): 79, y", 0, 0},
		"without a number":         {"4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): many, pid=1", 0, 0},
		"with a large number":      {"4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 65536, pid=1", 0, 0},
		"with a large process":     {"4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=99999999999, x", 31, 0},
		"with a negative process":  {"4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=-1, x", 31, 0},
		"without a time":           {"4,7,,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1", 0, 0},
		"of the end of time":       {"4,7,18446744073709551615,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1", 0, 0},
		"without a header":         {"NVRM: Xid (PCI:0000:3b:00): 31, pid=1", 0, 0},
		"of a key":                 {" SUBSYSTEM=pci", 0, 0},
	} {
		x, ok := parse(c.record, device)
		if ok != (c.number != 0) || x.Number != c.number || x.PID != c.pid {
			t.Errorf("%s: %+v, %v", name, x, ok)
		}
		if ok && x.at != 1500*time.Millisecond {
			t.Errorf("%s: at %v", name, x.at)
		}
	}
	if _, ok := parse("4,7,1,-;NVRM: Xid (): 31, x", ""); ok {
		t.Error("a device that is not known has an Xid")
	}
}

func TestTheFirstLineOfABurstIsKeptAndTheNewestBursts(t *testing.T) {
	var list []Xid
	for _, x := range []Xid{
		{Number: 13, Line: "old", at: 0}, {Number: 31, PID: 1, at: time.Second}, {Number: 31, PID: 2, at: time.Second}, {Number: 48}, {Number: 79},
		{Number: 31, PID: 1, Line: "new", at: 2 * time.Hour}, {Number: 31, PID: 1, Line: "same", at: 2*time.Hour + time.Second},
	} {
		list = add(list, x)
	}
	last := list[len(list)-1]
	if len(list) != most || list[0].PID != 2 || last.Line != "new" || last.More != 1 {
		t.Errorf("kept: %+v", list)
	}
}

func TestItIsToldWhoseAnXidIsAndWhatToDo(t *testing.T) {
	xids := []Xid{{Number: 31, PID: 7, Line: "own", More: 3, Age: 3 * time.Hour}, {Number: 13, PID: 8, Line: "other"}, {Number: 79, Line: "bus"}, {Number: 999, Line: "new"}}
	onHost := Tell(xids, 7)
	for _, want := range []string{`has Xid 31 of this process (application): an access of memory that is not mapped; restart the process`, `"own" and 3 more such lines, some 3h0m0s ago`,
		"Xid 13 of another process, pid 8, on this device", "Xid 79 of this device (hardware): the GPU has fallen off the bus; drain and restart the host", "Xid 999 of this device (not known here): see https://docs.nvidia.com/"} {
		if !strings.Contains(onHost, want) {
			t.Errorf("it lacks %q:\n%s", want, onHost)
		}
	}
	if text := Tell(xids[:1], 0); !strings.Contains(text, "of pid 7 on this device (in a container") {
		t.Error(text)
	}
	if text := Tell(nil, 7); !strings.Contains(text, "no Xid") {
		t.Error(text)
	}
}

// Of two meanings of a number the second would never be told.
func TestEveryNumberHasOneMeaning(t *testing.T) {
	seen := map[int]bool{}
	for _, m := range Meanings() {
		for _, n := range m.Numbers {
			if seen[n] || m.Whose == "" || m.What == "" || m.Do == "" {
				t.Errorf("%d: %+v", n, m)
			}
			seen[n] = true
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("4,7,1500000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=a\x1b[31m\xff, x\n DEVICE=+pci:0000:3b:00.0", device)
	f.Add("4,7,1500000,-;NVRM: Xid (0000:3b:00 GPU-I:01): 79, "+strings.Repeat("x", 10000), device)
	f.Add(";NVRM: Xid (): ,", "")
	f.Fuzz(func(t *testing.T, record, busID string) {
		x, ok := parse(record, busID)
		if !ok {
			return
		}
		if x.Number < 0 || x.PID < 0 || x.at < 0 || len(x.Line) > longest || !strings.HasPrefix(x.Line, "NVRM: Xid (") {
			t.Errorf("%+v", x)
		}
		if text := Tell([]Xid{x}, 1); strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("it is told as %q", text)
		}
	})
}
