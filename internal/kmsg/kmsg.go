// Package kmsg reads the Xids that NVIDIA's driver writes to the kernel's log, and knows what they mean.
package kmsg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Path is the kernel's log.
const Path = "/dev/kmsg"

const (
	// most is how many Xids are kept, longest how many bytes of a line.
	most    = 4
	longest = 256
	// burst is how long lines of one number and process are of one event.
	burst = time.Minute
	// settle is how long more is waited for when there is an Xid.
	settle = 50 * time.Millisecond
	// recordBytes is more than a record has.
	recordBytes = 8 << 10
)

// Log is the kernel's log from where it was opened on. It has one reader at a time; Close ends a read.
type Log struct{ file *os.File }

// Open opens the log at its end. An error says what to do, behind a semicolon. It does not block.
func Open(path string) (*Log, error) {
	file, err := open(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w; run with CAP_SYSLOG, or with the sysctl kernel.dmesg_restrict=0 on the host; a container also needs --device %s", err, Path)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w; give the container the device: --device %s", err, Path)
	}
	if err != nil {
		return nil, err
	}
	return &Log{file}, nil
}

// Close closes the log.
func (l *Log) Close() error { return l.file.Close() }

// Xid is an event that the driver wrote to the log.
type Xid struct {
	Number int
	// PID is the process's number on the host, 0 if the driver does not tell it.
	PID int
	// Line is what the driver wrote, cut. It has what any program is called and may be of any bytes.
	Line string
	// More counts the lines of the same number and process that came soon after.
	More int
	// Age is how long ago it was written, about: the log's clock and the system's drift apart.
	Age time.Duration
	// at is when, since the machine began.
	at time.Duration
}

// Xids are those of the device of that PCI bus id, such as "0000:3b:00.0", that were written since the log was opened or last read: the newest
// four of different numbers or processes, the newest last. It waits up to patience for one that is new and tells a cause.
func (l *Log) Xids(busID string, patience time.Duration) (found []Xid) {
	end := time.Now().Add(patience)
	_ = l.file.SetReadDeadline(end) // fails for a file, which has an end
	boot, record := sinceBoot(), make([]byte, recordBytes)
	for {
		n, err := l.file.Read(record)
		if errors.Is(err, syscall.EPIPE) {
			continue // records were overwritten before they were read
		}
		for line := range strings.Lines(string(record[:n])) {
			x, ok := parse(line, busID)
			if !ok {
				continue
			}
			x.Age = max(0, boot-x.at)
			found = add(found, x)
			if soon := time.Now().Add(settle); x.Age < burst && x.tellsCause() && soon.Before(end) {
				end = soon
				_ = l.file.SetReadDeadline(end)
			}
		}
		if err != nil {
			return found
		}
	}
}

// add keeps the first line of a burst, and the newest bursts.
func add(list []Xid, x Xid) []Xid {
	if i := slices.IndexFunc(list, func(o Xid) bool { return o.Number == x.Number && o.PID == x.PID }); i >= 0 {
		if x.at-list[i].at < burst {
			list[i].More++
			return list
		}
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == most {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, x)
}

// parse reads the first line of a record, "priority,sequence,microseconds,flags;text", if it is of an Xid of that device: the text is
// "NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=prog, ...", with " GPU-I:01" of a MIG instance before the bracket, and without pid, or
// with pid='<unknown>', where that is not known. The kernel lets no program write with a priority of its own.
func parse(line, busID string) (x Xid, ok bool) {
	header, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ";")
	fields := strings.SplitN(header, ",", 4)
	if len(fields) < 4 {
		return x, false
	}
	priority, err := strconv.ParseUint(fields[0], 10, 32)
	micro, err2 := strconv.ParseUint(fields[2], 10, 52)
	const levels = 8
	event, isXid := strings.CutPrefix(text, "NVRM: Xid (")
	where, event, closed := strings.Cut(event, "): ")
	if err != nil || err2 != nil || priority >= levels || !isXid || !closed {
		return x, false
	}
	where, _, _ = strings.Cut(strings.TrimPrefix(where, "PCI:"), " ")
	device, _, _ := strings.Cut(busID, ".")
	number, rest, _ := strings.Cut(event, ", ")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || device == "" || !strings.EqualFold(where, device) {
		return x, false
	}
	if pid, named := strings.CutPrefix(rest, "pid="); named {
		pid, _, _ = strings.Cut(pid, ",")
		if p, err := strconv.ParseUint(strings.Trim(pid, "'"), 10, 31); err == nil {
			x.PID = int(p)
		}
	}
	x.Number, x.Line, x.at = int(n), text[:min(len(text), longest)], time.Duration(micro)*time.Microsecond
	return x, true
}
