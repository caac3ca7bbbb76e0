package alloctrace_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

func compress(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	must.Get(w.Write(text))(t)
	must.Do(t, w.Close())
	return b.Bytes()
}

func TestGzipIsKnownByItsMagicNotItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv")
	must.Do(t, os.WriteFile(path, compress(t, []byte(header+row("free", "0x1", "1"))), 0o600))
	trace, err := alloctrace.DefaultLimits.ReadFile(path)
	if err != nil || len(trace.Rows) != 1 {
		t.Fatalf("got %v, %v", trace, err)
	}
}

// The file is cut behind every byte: no cut passes for a shorter trace unsaid.
func TestTruncatedGzipIsNoticedAtEveryLength(t *testing.T) {
	whole := compress(t, []byte(header+strings.Repeat(row("free", "0x1", "1"), 50)))
	for n := 2; n < len(whole); n++ {
		trace, err := alloctrace.Read("f", bytes.NewReader(whole[:n]))
		if err == nil && trace.Passed.Cut == len(trace.Rows)+2 {
			continue
		}
		var parseErr *alloctrace.ParseError
		if !errors.As(err, &parseErr) || parseErr.Field != "gzip" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
		if errors.Is(err, io.EOF) {
			t.Fatalf("cut at %d passes for the end of the trace: %v", n, err)
		}
	}
}

func TestDamagedGzipIsRefused(t *testing.T) {
	whole := compress(t, []byte(header+row("free", "0x1", "1")))
	whole[len(whole)-6] ^= 0xff // the checksum
	_, err := alloctrace.Read("f", bytes.NewReader(whole))
	if want := "f:3: gzip: damaged: gzip: invalid checksum"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEmptyGzipIsAnEmptyFile(t *testing.T) {
	_, err := alloctrace.Read("f", bytes.NewReader(compress(t, nil)))
	if want := "f:1: header: the file is empty"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
