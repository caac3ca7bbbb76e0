package kmsg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// piped is a log that a test writes.
func piped(t *testing.T) (*Log, *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kmsg")
	must.Do(t, syscall.Mkfifo(path, 0o600))
	writer := must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	log := must.Get(Open(path))(t)
	t.Cleanup(func() { _ = writer.Close(); _ = log.Close() })
	return log, writer
}

func write(t *testing.T, to *os.File, at time.Duration, text string) {
	t.Helper()
	_, err := fmt.Fprintf(to, "4,1,%d,-;%s\n SUBSYSTEM=pci\n", at.Microseconds(), text)
	must.Do(t, err)
}

// An Xid that only follows another, or is old, does not end the waiting for one that tells the cause.
func TestAnXidIsWaitedFor(t *testing.T) {
	for name, first := range map[string]string{"none": "", "one that follows": "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, x"} {
		t.Run(name, func(t *testing.T) {
			log, writer := piped(t)
			if first != "" {
				write(t, writer, sinceBoot(), first)
			}
			read := make(chan []Xid)
			go func() { read <- log.Xids(device, time.Minute) }()
			select {
			case found := <-read:
				t.Errorf("without a cause there are %v", found)
			case <-time.After(2 * settle):
			}
			write(t, writer, sinceBoot(), "NVRM: Xid (PCI:0000:3c:00): 79, another device")
			write(t, writer, sinceBoot(), "NVRM: Xid (PCI:0000:3b:00): 31, pid=2, y")
			found := <-read
			if n := len(found); n == 0 || found[n-1].Number != 31 || found[n-1].PID != 2 || found[n-1].Age > burst {
				t.Errorf("there are %+v", found)
			}
		})
	}
}

func TestTheWaitingEnds(t *testing.T) {
	log, writer := piped(t)
	write(t, writer, 0, "NVRM: Xid (PCI:0000:3b:00): 31, pid=2, of long ago")
	if found := log.Xids(device, time.Millisecond); len(found) != 1 || found[0].Age == 0 {
		t.Errorf("what is there is %v", found)
	}
	if found := log.Xids(device, time.Millisecond); len(found) != 0 {
		t.Errorf("it is told twice: %v", found)
	}
	read := make(chan []Xid)
	go func() { read <- log.Xids(device, time.Hour) }()
	must.Do(t, log.Close())
	<-read
}

// What was written before the log was opened is another's, and a file has an end.
func TestTheLogBeginsWhereItIsOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	file := must.Get(os.Create(path))(t)
	write(t, file, 0, "NVRM: Xid (PCI:0000:3b:00): 79, before")
	log := must.Get(Open(path))(t)
	write(t, file, 0, "NVRM: Xid (PCI:0000:3b:00): 31, after")
	must.Do(t, file.Close())
	if found := log.Xids(device, time.Hour); len(found) != 1 || found[0].Number != 31 {
		t.Errorf("there are %v", found)
	}
	must.Do(t, log.Close())
}

func TestWhatCannotBeOpenedSaysWhatToDo(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "; give the container the device") {
		t.Error(err)
	}
}

// The kernel's own log has a beginning, an end that can be waited at, and one record for each read; who may not read it is told.
func TestTheKernelsLogIsRead(t *testing.T) {
	log, err := Open(Path)
	if err != nil {
		if !strings.Contains(err.Error(), "; ") {
			t.Errorf("it does not say what to do: %v", err)
		}
		return
	}
	if found := log.Xids(device, time.Millisecond); len(found) != 0 {
		t.Errorf("there are %v", found)
	}
	must.Do(t, log.Close())
}
