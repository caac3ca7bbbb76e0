package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/demo"
	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/doctor"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// hostile is text that would clear the screen, set a title, ring, turn the
// direction of writing, forge a line, and be no UTF-8. It has no NUL, so that it
// can be a file's name, a variable and a flag.
const hostile = "\x1b[2J\x1b]0;title\x07\r\n\tforged%s%d\x7f\u0085\u009b31m\u202e\u2066\u2028\u200f\ufeff\xff\x9b"

// mustPrint demands that text prints: no control character of either set but
// line ends, nothing that hides or turns, no bytes that are no UTF-8, and no
// line that hostile begins.
func mustPrint(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if r != '\n' && (!unicode.IsPrint(r) || r == utf8.RuneError && size == 1) {
			t.Errorf("%s: it prints %q:\n%q", what, text[i:i+size], text[max(0, i-80):min(len(text), i+80)])
			return
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, "\t"), "forged") {
			t.Errorf("%s: it prints the line %q", what, line)
		}
	}
}

// fill puts hostile into every text of a value, and a number into every number.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(1)
	case reflect.Uint64, reflect.Uint8, reflect.Uint:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	}
}

func filled[T any]() *T {
	v := new(T)
	fill(reflect.ValueOf(v).Elem())
	return v
}

// hostileFile writes a file whose name is hostile too.
func hostileFile(t *testing.T, kind, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), kind+hostile)
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// raw is text as a JSON string that has every character raw that JSON permits.
func raw(text string) string {
	return strings.NewReplacer("\x1b", `\u001b`, "\x07", `\u0007`, "\r", `\r`, "\n", `\n`, "\t", `\t`).Replace(text)
}

func hostileIncident(t *testing.T) string {
	t.Helper()
	in := filled[incident.Incident]()
	in.Schema = incident.Schema
	in.Incomplete = ""
	text := must.Get(json.Marshal(in))(t)
	return string(text)
}

func TestIncidentsPrintNothingRaw(t *testing.T) {
	whole := hostileIncident(t)
	incomplete := strings.Replace(whole, `"stack":`, `"incomplete":"`+raw(hostile)+`","stack":`, 1)
	for name, text := range map[string]string{
		"whole": whole, "incomplete": incomplete,
		"no JSON": hostile, "a key": `{"` + raw(hostile) + `":1`, "a schema": `{"schema":"` + raw(hostile) + `"}`,
		"an address": strings.Replace(whole, `"0x1"`, `"`+raw(hostile)+`"`, 1), "a time": strings.Replace(whole, "1970-01-01T00:00:01Z", raw(hostile), 1),
	} {
		for _, kind := range []string{"", "x-dump-"} {
			path := hostileFile(t, kind, text)
			printed, code := captured(t, "incident", path, path, path+"missing", filepath.Dir(path))
			mustPrint(t, name, printed)
			if code != exitBadInput || name == "whole" && (strings.Count(printed, `\x1b[2J`) < 20 || !strings.Contains(printed, `\u202e`)) {
				t.Errorf("%s: exit code %d:\n%s", name, code, printed)
			}
		}
	}
}

// line is a line of a log with further fields.
func line(op, fields string) string {
	return `{"op":"` + op + `","time":"2026-01-01T00:00:00Z","mono_ns":1,"device":0,"stream":1,"requested":4096,"bytes":4096` + fields + `}` + "\n"
}

// hostileLogs are logs of which every text is hostile, and what is wrong with
// some of them is.
func hostileLogs() map[string]string {
	text := `"` + raw(hostile) + `"`
	whole := line("allocate", `,"ptr":"0x1000","generation":1,"tag":`+text) +
		line("allocate", `,"ptr":"0x100000","generation":2,"tag":`+text) +
		line("allocate", `,"error":`+text+`,"kind":"out_of_memory","tag":`+text) +
		line("refusal", `,"layer":`+text+`,"error":`+text+`,"kind":`+text) +
		line("prepare", `,"launch_id":1,"launch":`+text+`,"tag":`+text) +
		line("finish", `,"launch_id":1,"launch":`+text+`,"error":`+text)
	return map[string]string{
		"whole":     whole,
		"an op":     whole + line(raw(hostile), ""),
		"a pointer": whole + line("allocate", `,"generation":3,"ptr":`+text),
		"an access": whole + line("prepare", `,"access":`+text),
		"a type":    whole + line("prepare", `,"generation":`+text),
		"no JSON":   whole + "{" + strings.ReplaceAll(hostile, "\n", "") + "\n",
		"white":     strings.ReplaceAll(whole, `,"tag"`, ",\r\t\"tag\""),
		"no row":    hostile,
		"columns":   "Thread,Time,Action,Pointer,Size,Stream\n" + strings.ReplaceAll(hostile, "\n", "") + "\n",
		"an action": "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000001," + strings.ReplaceAll(hostile, "\n", "") + ",0x1,1,0\n",
		"a clock":   "Thread,Time,Action,Pointer,Size,Stream\n1," + strings.ReplaceAll(hostile, "\n", "") + ",free,0x1,1,0\n",
		"too long":  whole + line("allocate", `,"tag":"`+strings.Repeat(raw(hostile), 2000)+`"`),
	}
}

func TestHistoryPrintsNothingRaw(t *testing.T) {
	for name, text := range hostileLogs() {
		path := hostileFile(t, "", text)
		for _, format := range []string{"perfetto", "jsonl", hostile} {
			printed, code := captured(t, "history", path, "--format", format)
			mustPrint(t, name, printed)
			good := format != hostile && (name == "whole" || name == "white" || name == "too long")
			if (code == exitClean) != good || good && !strings.Contains(printed, `\u001b[2J`) {
				t.Errorf("%s as %q: exit code %d:\n%q", name, format, code, printed)
			}
		}
		printed, _ := captured(t, "history", path, "-o", path+"/out")
		mustPrint(t, name, printed)
	}
}

// What JSON a command prints is the data, though none of it is raw.
func TestLinesOfALogSayTheSameOnceTheyPrint(t *testing.T) {
	text := hostileLogs()["white"]
	printed, code := captured(t, "history", hostileFile(t, "", text), "--format=jsonl")
	want, got := strings.Split(text, "\n"), strings.Split(printed, "\n")
	if code != exitClean || len(want) != len(got) {
		t.Fatalf("exit code %d, %d lines of %d", code, len(got), len(want))
	}
	for i := range want[:len(want)-1] {
		var a, b any
		if json.Unmarshal([]byte(want[i]), &a) != nil || json.Unmarshal([]byte(got[i]), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%q became %q", want[i], got[i])
		}
	}
}

func TestReplayPrintsNothingRaw(t *testing.T) {
	for name, text := range hostileLogs() {
		path := hostileFile(t, "", text)
		for _, flags := range [][]string{{"--budget=4096", "--guard=ledger"}, {"--json", "--budget=4096", "--guard=off"}} { // the second block is refused, and the first is named
			printed, code := captured(t, append([]string{"replay", path, path + "missing"}, flags...)...)
			mustPrint(t, name, printed)
			if name == "whole" && !strings.Contains(printed, "largest holders: ") || code != exitBadInput {
				t.Errorf("%s: exit code %d:\n%s", name, code, printed)
			}
		}
	}
}

func TestGuardPrintsNothingRaw(t *testing.T) {
	status := map[string]any{"setting": hostile, "policy": hostile, "findings": 1, "hunt_tags": []string{hostile, hostile}, "numbers": map[string]int{hostile: 1}}
	whole := must.Get(json.Marshal(status))(t)
	for _, c := range []struct {
		status int
		body   string
	}{
		{http.StatusOK, string(whole)}, {http.StatusOK, strings.ReplaceAll(string(whole), ",", "\r,")}, {http.StatusOK, hostile}, {http.StatusOK, `{"` + raw(hostile)},
		{http.StatusBadRequest, hostile}, {http.StatusForbidden, hostile}, {599, hostile},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		for _, args := range [][]string{{}, {"--json"}, {"hunt", "--hunt-tag=" + hostile}} {
			printed, code := captured(t, append([]string{"guard", "--at=" + server.URL}, args...)...)
			mustPrint(t, fmt.Sprintf("%d %q", c.status, args), printed)
			if (code == exitClean) != (c.status == http.StatusOK && strings.HasPrefix(c.body, `{"findings"`)) {
				t.Errorf("%+v %q: exit code %d:\n%s", c, args, code, printed)
			}
		}
		server.Close()
	}
	printed, _ := captured(t, "guard", "--at=http://127.0.0.1:1/"+hostile)
	mustPrint(t, "an address", printed)
	printed, code := captured(t, "guard", "--at=http://127.0.0.1:1", hostile)
	if mustPrint(t, "a word", printed); code != exitBadInput {
		t.Errorf("a word: exit code %d", code)
	}
}

// printed is what print writes to a console.
func printed(t *testing.T, show func(c *console)) string {
	t.Helper()
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer file.Close()
	show(newConsole(file, file))
	text := must.Get(os.ReadFile(file.Name()))(t)
	return string(text)
}

// Reports are filled with hostile text throughout: tags, findings, errors,
// what a driver, a device and a variable are called.
func TestReportsPrintNothingRaw(t *testing.T) {
	report := filled[demo.Report]()
	for name, show := range map[string]func(c *console){
		"demo":        func(c *console) { printDemo(c, report) },
		"demo, bare":  func(c *console) { bare := *report; bare.Planted = nil; bare.Findings = nil; printDemo(c, &bare) },
		"demo, JSON":  func(c *console) { _ = c.printJSON(report) },
		"replay":      func(c *console) { printReplay(c, filled[replay.Report]()) },
		"replay JSON": func(c *console) { _ = c.printJSON(filled[replay.Report]()) },
		"doctor":      func(c *console) { filled[doctor.Report]().Print(c.out) },
		"doctor JSON": func(c *console) { _ = c.printJSON(filled[doctor.Report]()) },
	} {
		text := printed(t, show)
		if name != "demo" && name != "demo, bare" { // a finding's lines are its own layout
			mustPrint(t, name, text)
		} else {
			mustPrint(t, name, strings.ReplaceAll(text, "\n\tforged", ""))
		}
		if !strings.Contains(text, `[2J`) {
			t.Errorf("%s: nothing of it was printed: %s", name, text)
		}
	}
}

func TestFlagsAndVariablesArePrintedSafely(t *testing.T) {
	t.Chdir(t.TempDir()) // a variable names a folder, which is made
	for _, args := range [][]string{
		{hostile}, {"help", hostile}, {"demo", "--" + hostile}, {"demo", hostile}, {"demo", "--for=" + hostile}, {"demo", "--device=" + hostile}, {"demo", "--guard=" + hostile},
		{"demo", "--inject=" + hostile}, {"demo", "--budget=" + hostile}, {"demo", "--listen=" + hostile}, {"demo", "--listen=", "--spans=/no/such/" + hostile},
		{"demo", "--listen=", "--incidents=/dev/null/" + hostile}, {"demo", "--guard-policy=" + hostile}, {"replay", "--resource=" + hostile, "x"}, {"replay", "--speed=" + hostile, "x"},
		{"replay", "--max-bytes=" + hostile, "x"}, {"history", "--max-rows=" + hostile, "x"}, {"history", hostile}, {"doctor", "--device=" + hostile}, {"guard", "--at=" + hostile}, {"incident", hostile},
	} {
		printed, code := captured(t, args...)
		mustPrint(t, fmt.Sprintf("%q", args), printed)
		if code != exitBadInput && args[0] != "help" {
			t.Errorf("%q: exit code %d:\n%s", args, code, printed)
		}
	}
	for _, variable := range []string{"FENCEPOST_GUARD", "FENCEPOST_LIBCUDA", "FENCEPOST_INCIDENTS", "CUDA_VISIBLE_DEVICES", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_METRICS_EXPORTER"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, hostile)
			for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}, {"demo", "--listen=", "--for=1ms"}} {
				printed, _ := captured(t, args...)
				mustPrint(t, fmt.Sprintf("%q", args), printed)
			}
		})
	}
}
