package traces

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestNamesListsTheFourTraces(t *testing.T) {
	want := []string{"gpt2", "resnet", "serving", "tables"}
	if got := Names(); !slices.Equal(got, want) {
		t.Fatalf("Names() = %q, want %q", got, want)
	}
}

func TestOpenTakesNameAndFileName(t *testing.T) {
	for _, name := range []string{"gpt2", "gpt2.csv.gz"} {
		f, err := Open(name)
		if err != nil {
			t.Fatalf("Open(%q): %v", name, err)
		}
		magic := make([]byte, 2)
		if _, err := io.ReadFull(f, magic); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
			t.Errorf("Open(%q) does not begin as gzip: % x, %v", name, magic, err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func TestOpenOfAnUnknownNameListsThoseThereAre(t *testing.T) {
	_, err := Open("llama")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Open(llama) = %v, want fs.ErrNotExist", err)
	}
	if !strings.Contains(err.Error(), "gpt2, resnet, serving, tables") {
		t.Errorf("error does not list the traces: %v", err)
	}
}
