package alloctrace_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// supported ends each error of a file of another kind.
const supported = "; supported are RMM's CSV (Thread,Time,Action,Pointer,Size,Stream) and the JSON lines of Fencepost's log, plain or gzipped"

// parseErrors are texts and the whole error that each must give.
var parseErrors = map[string]struct{ text, want string }{
	"empty file":           {"", `f:1: header: the file is empty`},
	"a bad first row":      {"0,00:00:00:000000,peel,0x1,1,0\n", "f:1: header: neither RMM's CSV nor JSON lines" + supported + `, got "0,00:00:00:000000,peel,0x1,1,0"`},
	"unknown format":       {"hello\n", "f:1: header: neither RMM's CSV nor JSON lines" + supported + `, got "hello"`},
	"Chrome's trace":       {`{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"x"` + ",\n", "f:1: header: this is a trace in Chrome's JSON format, which is for Perfetto" + supported},
	"Chrome's array":       {"[\n{}]\n", "f:1: header: this is a JSON array, such as a trace in Chrome's format" + supported},
	"a snapshot as JSON":   {"{\n  \"segments\": [\n    {\n", "f:1: header: this is a PyTorch memory snapshot" + supported},
	"a pickle":             {"\x80\x04\x95abc", "f:1: header: this is a pickle, such as a PyTorch memory snapshot" + supported},
	"OTLP":                 {`{"resourceSpans":[]}` + "\n", "f:1: header: this is spans in OTLP's JSON" + supported},
	"an incident":          {"{\n  \"schema\": 1,\n  \"number\": 1,\n  \"finding\": {\n", "f:1: header: this is an incident of Fencepost's, which fencepost incident shows" + supported},
	"SQLite":               {"SQLite format 3\x00", "f:1: header: this is an SQLite database, such as Nsight Systems exports" + supported},
	"pretty, and no end":   {"{\n  \"rows\": 7,\n  \"more\": [" + strings.Repeat(" ", 70_000), `f:1: header: this is JSON of another kind (with "rows, more")` + supported},
	"another log":          {`{"time":"x","level":"INFO","msg":"hi"}` + "\n", `f:1: header: this is JSON of another kind (with "time, level, msg")` + supported},
	"too few columns":      {header + "0,00:00:00:000000,free,0x1,1\n", `f:2: row: want the six columns Thread,Time,Action,Pointer,Size,Stream, got "0,00:00:00:000000,free,0x1,1"`},
	"too many columns":     {header + row("free", "0x1", "1,2"), `f:2: row: want the six columns Thread,Time,Action,Pointer,Size,Stream, got "0,00:00:00:000000,free,0x1,1,2,0"`},
	"blank line":           {header + row("free", "0x1", "1") + "\n", `f:3: row: want the six columns Thread,Time,Action,Pointer,Size,Stream`},
	"unknown action":       {header + row("resize", "0x1", "1"), `f:2: Action: unknown action, want allocate, free or allocate failure, got "resize"`},
	"size overflows":       {header + row("allocate", "0x1", "18446744073709551616"), `f:2: Size: does not fit in 64 bits, got "18446744073709551616"`},
	"size no number":       {header + row("allocate", "0x1", "many"), `f:2: Size: want a whole number, got "many"`},
	"size missing":         {header + row("allocate", "0x1", ""), `f:2: Size: want a whole number`},
	"size negative":        {header + row("allocate", "0x1", "-1"), `f:2: Size: must not be negative, got "-1"`},
	"size signed":          {header + row("allocate", "0x1", "+1"), `f:2: Size: want a whole number, got "+1"`},
	"size fraction":        {header + row("allocate", "0x1", "1.5"), `f:2: Size: want a whole number, got "1.5"`},
	"pointer no hex":       {header + row("free", "0xzz", "1"), `f:2: Pointer: want hexadecimal digits, got "0xzz"`},
	"pointer decimal":      {header + row("free", "4096", "1"), `f:2: Pointer: want "0x" and hexadecimal digits, or "(nil)", got "4096"`},
	"pointer overflows":    {header + row("free", "0x10000000000000000", "1"), `f:2: Pointer: does not fit in 64 bits, got "0x10000000000000000"`},
	"pointer missing":      {header + row("allocate", "(nil)", "1"), `f:2: Pointer: an allocation of bytes needs a pointer, got "(nil)"`},
	"stream":               {header + "0,00:00:00:000000,free,0x1,1,blue\n", `f:2: Stream: want a whole number, got "blue"`},
	"thread":               {header + "-3,00:00:00:000000,free,0x1,1,0\n", `f:2: Thread: must not be negative, got "-3"`},
	"time too short":       {header + "0,1,free,0x1,1,0\n", `f:2: Time: want HH:MM:SS:uuuuuu or HH:MM:SS.uuuuuu, got "1"`},
	"time minutes":         {header + "0,00:60:00:000000,free,0x1,1,0\n", `f:2: Time: want HH:MM:SS:uuuuuu or HH:MM:SS.uuuuuu, got "00:60:00:000000"`},
	"time two parts":       {header + "0,00:00:000000,free,0x1,1,0\n", `f:2: Time: want HH:MM:SS:uuuuuu or HH:MM:SS.uuuuuu, got "00:00:000000"`},
	"time no digits":       {header + "0,0x:00:00:000000,free,0x1,1,0\n", `f:2: Time: want HH:MM:SS:uuuuuu or HH:MM:SS.uuuuuu, got "0x:00:00:000000"`},
	"a quote that is open": {header + `0,00:00:00:000000,free,0x1,1,"0` + "\n" + row("free", "0x1", "1"), `f:2: row: want the six columns Thread,Time,Action,Pointer,Size,Stream, got "0,00:00:00:000000,free,0x1,1,\"0"`},
	"the second bad row":   {header + row("free", "0x1", "1") + row("free", "0x1", "x"), `f:3: Size: want a whole number, got "x"`},
}

func row(action, pointer, size string) string {
	return "0,00:00:00:000000," + action + "," + pointer + "," + size + ",0\n"
}

func TestParseErrorsNameFileLineAndField(t *testing.T) {
	for name, c := range parseErrors {
		t.Run(name, func(t *testing.T) { wantError(t, c.text, c.want) })
	}
}

func wantError(t *testing.T, text, want string) {
	t.Helper()
	trace, err := alloctrace.Read("f", strings.NewReader(text))
	var parseErr *alloctrace.ParseError
	if !errors.As(err, &parseErr) || trace != nil {
		t.Fatalf("got %v, %v; want a ParseError and no trace", trace, err)
	}
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestParseErrorShortensWhatItRepeats(t *testing.T) {
	_, err := alloctrace.Read("f", strings.NewReader(header+strings.Repeat("x", 1000)+"\n"))
	if n := len(err.Error()); n > 200 {
		t.Errorf("the message has %d bytes: %s", n, err)
	}
}

func TestReadFileOfAMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing.csv")
	_, err := alloctrace.DefaultLimits.ReadFile(path)
	if want := path + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not match fs.ErrNotExist", err)
	}
}

func TestReadFileOfAFolder(t *testing.T) {
	var parseErr *alloctrace.ParseError
	if _, err := alloctrace.DefaultLimits.ReadFile(t.TempDir()); !errors.As(err, &parseErr) || parseErr.Field != "file" {
		t.Errorf("got %v, want a ParseError of the file", err)
	}
}
