package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const rowHeader = "Thread,Time,Action,Pointer,Size,Stream\n"

// One row that is too long, such as our own log had of a tag of 70 000 bytes, is
// skipped, counted and told; every other is converted and played.
func TestARowThatIsTooLongCostsNoOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	write(t, path, line("allocate", `,"ptr":"0x1000","generation":1,"tag":"`+strings.Repeat("t", 70_000)+`"`)+aLog, 0o600)
	const says = "rows of more than 65536 bytes were skipped: 1 of them, the first in line 1"
	for _, format := range []string{"jsonl", "perfetto", "pytorch"} {
		text, code := captured(t, "history", path, "--format", format, "-o", filepath.Join(dir, "out"))
		if code != exitClean || !strings.Contains(text, says) {
			t.Errorf("%s: exit code %d: %s", format, code, text)
		}
		if format == "jsonl" {
			mustHold(t, format, filepath.Join(dir, "out"), aLog)
		}
	}
	text, code := captured(t, "replay", path, "--json")
	report := text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]
	if code != exitClean || !strings.Contains(text, says) || !strings.Contains(text, "too long       1 rows were skipped, the first in line 1") {
		t.Errorf("replay: exit code %d:\n%s", code, text)
	}
	for field, want := range map[string]string{"too_long": "1", "first_too_long_line": "1", "allocations": "1", "frees": "1"} {
		if got, err := lookUp(report, field); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s is %v, %v; want %s", field, got, err, want)
		}
	}
}

// An allocation of no bytes that returned a pointer ends no replay.
func TestARowOfNoBytesDoesNotEndAReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zero.csv")
	write(t, path, rowHeader+"1,00:00:00:000001,allocate,0x100,0,0\n1,00:00:00:000002,free,0x100,0,0\n1,00:00:00:000003,allocate,0x200,64,0\n1,00:00:00:000004,free,0x200,64,0\n", 0o600)
	for _, guard := range []string{"off", "ledger", "sample", "hunt"} {
		text, code := captured(t, "replay", path, "--guard", guard)
		if code != exitClean || !strings.Contains(text, "events         4: 1 allocations, 1 frees, 0 recorded failures, 2 without memory") {
			t.Errorf("%s: exit code %d:\n%s", guard, code, text)
		}
	}
}

// A small file that unpacks to very many rows is refused by default, with file and
// line.
func TestAFewBytesThatUnpackToMillionsOfRowsAreRefused(t *testing.T) {
	limit, flags := 1_000_000, []string(nil) // without the flag
	if testing.Short() {
		limit, flags = 100_000, []string{"--max-rows=100000"}
	}
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	_, _ = packer.Write([]byte(rowHeader))
	rows := []byte(strings.Repeat("1,00:00:00:000001,free,0x100,64,0\n", 10_000))
	for range limit * 3 / 2 / 10_000 {
		_, _ = packer.Write(rows)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bomb.csv.gz")
	write(t, path, packed.String(), 0o600)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text, code := captured(t, append([]string{"replay", path}, flags...)...)
	runtime.ReadMemStats(&after)
	if code != exitBadInput || !strings.Contains(text, fmt.Sprintf("bomb.csv.gz:%d: file: more than %d rows, which is the limit (--max-rows)", limit+2, limit)) {
		t.Errorf("exit code %d: %s", code, text)
	}
	t.Logf("%d bytes of gzip; %d MiB were allocated in all", packed.Len(), (after.TotalAlloc-before.TotalAlloc)>>20)
	for flag, says := range map[string]string{"--max-rows=10": "bomb.csv.gz:12: file: more than 10 rows", "--max-bytes=1KiB": "bomb.csv.gz:30: file: more than 1024 bytes unpacked"} {
		if text, code := captured(t, "replay", path, flag); code != exitBadInput || !strings.Contains(text, says) {
			t.Errorf("%s: exit code %d: %s", flag, code, text)
		}
	}
}

// A number that is none, or no number that a flag can mean, is refused before
// anything runs.
func TestANumberThatIsNoneIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, aLog, 0o600)
	odd := []string{"NaN", "nan", "Inf", "+Inf", "-Inf", "-1", "1e-300", "-1e-300", "1e300", "5e-324", "1e999", "0x1p-1074", "one", ""}
	for _, c := range []struct {
		command []string
		flag    string
		values  []string
	}{
		{[]string{"replay", path}, "--speed", odd},
		{[]string{"demo", "--listen=", "--for=50ms"}, "--sample", []string{"NaN", "Inf", "-Inf", "-1", "-1e-300", "1.0000000000000002", "1e300", "one", ""}},
		{[]string{"demo", "--listen="}, "--for", []string{"0s", "-1s", "NaN", "1e9s", "9999999999h", "1", ""}},
		{[]string{"demo", "--listen=", "--for=50ms"}, "--budget", []string{"0", "0GiB", "-1", "NaN", "Inf", "1e9", "18446744073709551616", "99999999TiB", "1.5GiB"}},
		{[]string{"replay", path}, "--budget", []string{"0", "-1", "18446744073709551616"}},
		{[]string{"replay", path}, "--max-rows", []string{"0", "-1", "9223372036854775808", "1e3", "NaN", ""}},
		{[]string{"replay", path}, "--max-bytes", []string{"0", "-1", "18446744073709551616", "NaN", "99999999TiB", ""}},
		{[]string{"fit", path}, "--memory", []string{"0", "-1", "NaN", "1.5GiB", "1KiB", "2TiB", "18446744073709551616"}},
		{[]string{"fit", path, "--memory=1GiB"}, "--aside", []string{"-1", "NaN", "1GiB", "18446744073709551615"}},
		{[]string{"fit", path}, "--mig", []string{"1g", "1g.10gb 1g.10gb", "+me", "\x1b[31m"}},
		{[]string{"fit", path}, "--jobs", []string{"-1", "1", "NaN", "9223372036854775808", ""}},
		{[]string{"fit", path}, "--ordinal", []string{"1", "NaN", "9223372036854775808", ""}},
		{[]string{"fit", path}, "--max-rows", []string{"0", "-1", "9223372036854775808"}},
		{[]string{"fit", path}, "--max-bytes", []string{"0", "-1", "NaN"}},
		{[]string{"history", path}, "--max-rows", []string{"0", "-1", "9223372036854775808"}},
		{[]string{"history", path}, "--max-bytes", []string{"0", "-1", "NaN"}},
		{[]string{"doctor"}, "--ordinal", []string{"-1", "16", "9223372036854775808", "NaN", ""}},
	} {
		for _, value := range c.values {
			text, code := captured(t, append(c.command, c.flag+"="+value)...)
			if code != exitBadInput || !strings.Contains(text, "fencepost: ") {
				t.Errorf("%q %s=%s: exit code %d:\n%s", c.command[0], c.flag, value, code, text)
			}
		}
	}
}
