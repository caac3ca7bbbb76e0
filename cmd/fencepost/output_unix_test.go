//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestAPipeIsWrittenToAndStays(t *testing.T) {
	dir := t.TempDir()
	log, pipe := filepath.Join(dir, "log"), filepath.Join(dir, "pipe")
	write(t, log, aLog, 0o600)
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	got := make(chan string, 1)
	go func() {
		text, _ := os.ReadFile(pipe)
		got <- string(text)
	}()
	text, code := captured(t, "history", log, "--format=jsonl", "-o", pipe)
	if read := <-got; code != exitClean || read != aLog {
		t.Errorf("exit code %d, read %q: %s", code, read, text)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the pipe is %v, %v", info, err)
	}
	mustHave(t, "a pipe", dir, "log", "pipe")
}
