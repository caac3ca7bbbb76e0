package faultdump_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/faultdump"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func open(t *testing.T, read func(io.Reader)) *faultdump.Watch {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	w, err := faultdump.Open(read)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		must.Do(t, w.Close(context.Background()))
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
			t.Errorf("what is left: %v, %v", left, err)
		}
	})
	return w
}

// write is what a driver does, in one piece or in several.
func write(t *testing.T, w *faultdump.Watch, pieces ...string) {
	t.Helper()
	f, err := os.OpenFile(w.Path(), os.O_WRONLY, 0)
	must.Do(t, err)
	for _, p := range pieces {
		_, err := io.WriteString(f, p)
		must.Do(t, err)
	}
	must.Do(t, f.Close())
}

// The first dump is handed on whole, and all are taken to their ends, so that no driver waits for ever.
func TestEveryDumpIsTaken(t *testing.T) {
	var got string
	w := open(t, func(r io.Reader) {
		all, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		got = string(all)
	})
	if w.Begun() {
		t.Error("a dump has begun before there was one")
	}
	big := strings.Repeat("x", 1<<20) // more than a pipe holds
	write(t, w, "first ", big)
	if !w.Begun() {
		t.Error("no dump has begun")
	}
	<-w.Done()
	if got != "first "+big {
		t.Errorf("%d bytes came", len(got))
	}
	for range 3 {
		write(t, w, "another", big)
	}
}

// What does not want the rest of a dump holds nobody up.
func TestADumpThatIsNotReadIsTaken(t *testing.T) {
	w := open(t, func(io.Reader) {})
	write(t, w, strings.Repeat("x", 1<<20))
	<-w.Done()
}

// A dump has begun from its first byte on, whether or not it goes on.
func TestADumpBeginsWithItsFirstByte(t *testing.T) {
	read := make(chan struct{})
	w := open(t, func(io.Reader) { <-read })
	f, err := os.OpenFile(w.Path(), os.O_WRONLY, 0)
	must.Do(t, err)
	_, err = f.WriteString("xy")
	must.Do(t, err)
	if !w.Begun() {
		t.Error("it has not begun")
	}
	select {
	case <-w.Done():
		t.Error("it is done")
	default:
	}
	close(read)
	must.Do(t, f.Close())
	<-w.Done()
}

// A close waits for a dump under way, but not for ever.
func TestACloseDoesNotWaitForEver(t *testing.T) {
	w := open(t, func(r io.Reader) { _, _ = io.Copy(io.Discard, r) })
	f, err := os.OpenFile(w.Path(), os.O_WRONLY, 0)
	must.Do(t, err)
	defer func() { must.Do(t, f.Close()) }()
	_, err = f.WriteString("half of a du")
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	must.Do(t, w.Close(ctx))
}

func TestACloseWaitsForADumpUnderWay(t *testing.T) {
	w := open(t, func(r io.Reader) { _, _ = io.Copy(io.Discard, r) })
	f, err := os.OpenFile(w.Path(), os.O_WRONLY, 0)
	must.Do(t, err)
	_, err = f.WriteString("half of a du")
	must.Do(t, err)
	closed := make(chan error)
	go func() { closed <- w.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Errorf("it did not wait: %v", err)
	case <-time.After(10 * time.Millisecond):
		_, err = f.WriteString("mp")
		must.Do(t, errors.Join(err, f.Close()))
		must.Do(t, <-closed)
	}
}

func TestOnlyThisUserCanReach(t *testing.T) {
	w := open(t, func(io.Reader) {})
	for path, want := range map[string]os.FileMode{filepath.Dir(w.Path()): 0o700 | os.ModeDir, w.Path(): 0o600 | os.ModeNamedPipe} {
		info, err := os.Stat(path)
		must.Do(t, err)
		if info.Mode() != want {
			t.Errorf("%s has the mode %v, want %v", path, info.Mode(), want)
		}
	}
}
