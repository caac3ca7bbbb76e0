package admit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// known is a model of three kinds of jobs.
func known() *admit.Model {
	m := new(admit.Model)
	for i := range 700 {
		m.Observe("scan", admit.ShapeOf("rows", 100+i*37%1000), uint64(5000+80*(100+i*37%1000)))
		m.Observe("join", admit.ShapeOf("rows", i*13%100).And("columns", i%7), uint64(1000+i*13%100*(i%7)*50))
		m.Observe("\"odd\"\n", admit.Shape{}, 1<<40+3)
	}
	return m
}

func TestWhatWasLearnedIsKeptAcrossARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peaks")
	before := known()
	must.Do(t, before.Save(path))
	after := must.Get(admit.Load(path))(t)
	must.Do(t, after.Save(path+"2"))
	again := must.Get(admit.Load(path + "2"))(t)
	if first, second := must.Get(os.ReadFile(path))(t), must.Get(os.ReadFile(path+"2"))(t); string(first) != string(second) || len(first) > 30_000 {
		t.Errorf("a model that was loaded is saved as another, or they are large: %d and %d bytes", len(first), len(second))
	}
	for n := range 2000 {
		for job, s := range map[string]admit.Shape{"scan": admit.ShapeOf("rows", n), "join": admit.ShapeOf("rows", n%150).And("columns", n%9), "\"odd\"\n": {}} {
			a, b, c := before.Predict(job, s), after.Predict(job, s), again.Predict(job, s)
			if b != c || b.Runs != 256 || !near(a.Bytes, b.Bytes) || !near(a.Low, b.Low) {
				t.Fatalf("%q of %v: %+v, then %+v and %+v", job, s, a, b, c)
			}
		}
	}
}

// near allows what the fit has not seen of the last runs.
func near(a, b uint64) bool { return a*100 <= b*103+300 && b*100 <= a*103+300 }

// Each byte that is changed, and each length, is noticed, and what is said leads on.
func TestADamagedFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peaks")
	must.Do(t, known().Save(path))
	whole := must.Get(os.ReadFile(path))(t)
	refused := func(what string, text []byte) {
		must.Do(t, os.WriteFile(path, text, 0o600))
		m, err := admit.Load(path)
		if m != nil || !errors.Is(err, admit.ErrModelFile) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it to learn anew") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := 0; i < len(whole); i += 1 + i/40 {
		refused("cut", whole[:i])
		changed := append([]byte(nil), whole...)
		changed[i] ^= 1
		refused("changed", changed)
	}
	empty := filepath.Join(t.TempDir(), "peaks")
	must.Do(t, new(admit.Model).Save(empty))
	nothing := must.Get(os.ReadFile(empty))(t)
	one := filepath.Join(t.TempDir(), "peaks")
	m := new(admit.Model)
	for i := range 256 {
		m.Observe("one", admit.ShapeOf("rows", i*7919), uint64(1e9+i))
	}
	must.Do(t, m.Save(one))
	for file, whole := range map[string][]byte{"of three kinds": whole, "of nothing": nothing, "of one kind": must.Get(os.ReadFile(one))(t)} {
		line := bytes.IndexByte(whole, '\n') + 1
		for what, text := range map[string][]byte{
			"zeros of its length":     make([]byte, len(whole)),
			"one zero":                {0},
			"a line's end":            []byte("\n"),
			"blanks":                  []byte(" \r\n\t\n"),
			"a byte order mark alone": []byte("\xef\xbb\xbf"),
			"a byte order mark":       append([]byte("\xef\xbb\xbf"), whole...),
			"blank lines before":      append([]byte("\r\n \n"), whole...),
			"both":                    append([]byte("\xef\xbb\xbf\n"), whole...),
			"zeros before":            append(make([]byte, 4096), whole...),
			"two bytes a letter":      append([]byte("\xff\xfe"), bytes.Join(bytes.Split(whole, nil), []byte{0})...),
			"its first bytes gone":    whole[9:],
			"its first line gone":     append([]byte("["), bytes.TrimPrefix(whole[line:], []byte("["))...),
			"twice":                   append(append([]byte(nil), whole...), whole...),
			"a few other letters":     append([]byte("FENC"), whole[4:]...),
		} {
			if what == "its first line gone" && file == "of nothing" {
				continue // nothing of it is left
			}
			refused(what+", "+file, text)
		}
		for n := 1; n < line; n++ {
			for _, b := range []byte{0, 1, 0x1b, 0xff} {
				if end := line - 9; n > end && file == "of nothing" {
					continue
				}
				refused(fmt.Sprintf("its first %d bytes are %#x, %s", n, b, file), append(bytes.Repeat([]byte{b}, n), whole[n:]...))
			}
		}
		for n := range line {
			for bit := range 8 {
				changed := append([]byte(nil), whole...)
				changed[n] ^= 1 << bit
				refused(fmt.Sprintf("bit %d of byte %d, %s", bit, n, file), changed)
			}
		}
		if n := len(whole) / 2; n > 4096 { // a page that was never written, and an end that was not either
			refused("the first page is zeros, "+file, append(make([]byte, 4096), whole[4096:]...))
			refused("both ends are, "+file, append(append(make([]byte, line), whole[line:n]...), make([]byte, n)...))
		}
	}
	refused("too large", append(whole, make([]byte, 33<<20)...))
	refused("longer", append(whole, '\n'))
	later := []byte(strings.Replace(string(whole), " 1 ", " 2 ", 1))
	refused("of a later version", later)
	if _, err := admit.Load(path); !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
	if _, err := admit.Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a file that is not there:", err)
	}
}

// A path that is a pipe, a device or a folder is refused at once, and stays what it is.
func TestWhatIsNoRegularFileIsRefused(t *testing.T) {
	folder := t.TempDir()
	paths := []string{folder, os.DevNull, filepath.Join(folder, "pipe")}
	if err := exec.CommandContext(t.Context(), "mkfifo", paths[2]).Run(); err != nil {
		paths = paths[:2]
	}
	for _, path := range paths {
		before := must.Get(os.Stat(path))(t).Mode()
		for what, call := range map[string]func() error{
			"Load": func() error { _, err := admit.Load(path); return err },
			"Save": func() error { return known().Save(path) },
		} {
			done := make(chan error, 1)
			go func() { done <- call() }()
			select {
			case err := <-done:
				if err == nil || errors.Is(err, admit.ErrModelFile) || !strings.Contains(err.Error(), "not a regular file") {
					t.Errorf("%s of %s: %v", what, path, err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s of %s does not end", what, path)
			}
		}
		if after := must.Get(os.Stat(path))(t).Mode(); after != before {
			t.Errorf("%s was %v and is %v", path, before, after)
		}
	}
}

// saver is what the processes do that the tests below start: each learns runs of a job of its own
// and of one that all have, and saves after each.
func saver(path, name string, rounds int) error {
	m := new(admit.Model)
	for i := range rounds {
		m.Observe(fmt.Sprint(name, i), admit.Shape{}, uint64(i)<<20)
		m.Observe("shared", admit.ShapeOf("rows", i), uint64(i))
		if err := m.Save(path); err != nil {
			return err
		}
	}
	return nil
}

// TestMain is a saver in the processes that the tests below start.
func TestMain(m *testing.M) {
	path, name := os.Getenv("SAVER_PATH"), os.Getenv("SAVER_NAME")
	if path == "" {
		os.Exit(m.Run())
	}
	rounds, err := strconv.Atoi(os.Getenv("SAVER_ROUNDS"))
	if err == nil {
		err = saver(path, name, rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func startSaver(t *testing.T, path, name string, rounds int) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), must.Get(os.Executable())(t))
	c.Env = append(os.Environ(), "SAVER_PATH="+path, "SAVER_NAME="+name, fmt.Sprint("SAVER_ROUNDS=", rounds))
	must.Do(t, c.Start())
	return c
}

// Two processes and two models of this one save to one file, at once and often.
func TestSaversOfOneFileLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peaks")
	const rounds = 40
	a, b := startSaver(t, path, "a", rounds), startSaver(t, path, "b", rounds)
	var here sync.WaitGroup
	for _, name := range []string{"c", "d"} {
		here.Go(func() {
			if err := saver(path, name, rounds); err != nil {
				t.Error(err)
			}
		})
	}
	here.Wait()
	must.Do(t, a.Wait(), b.Wait())
	m := must.Get(admit.Load(path))(t)
	for i := range rounds {
		for _, name := range []string{"a", "b", "c", "d"} {
			if p := m.Predict(fmt.Sprint(name, i), admit.Shape{}); p.Runs != 1 || p.Bytes < uint64(i)<<20 {
				t.Errorf("of %s%d: %+v", name, i, p)
			}
		}
	}
	if p := m.Predict("shared", admit.ShapeOf("rows", 5)); p.Runs != 4*rounds {
		t.Errorf("of the job of all %d runs are left, of %d", p.Runs, 4*rounds)
	}
	if entries := must.Get(os.ReadDir(filepath.Dir(path)))(t); len(entries) != 1 {
		t.Error("there is more than the file:", entries)
	}
}

func TestASaverThatIsKilledLeavesAWholeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peaks")
	must.Do(t, known().Save(path))
	for i := range 15 {
		savers := []*exec.Cmd{startSaver(t, path, fmt.Sprint("x", i, "-"), 10_000),
			startSaver(t, path, fmt.Sprint("y", i, "-"), 10_000)}
		for before := must.Get(os.Stat(path))(t); ; time.Sleep(time.Millisecond) {
			if after := must.Get(os.Stat(path))(t); !os.SameFile(before, after) {
				break // they save
			}
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		for _, s := range savers {
			must.Do(t, s.Process.Kill())
			_ = s.Wait()
		}
		if p := must.Get(admit.Load(path))(t).Predict("shared", admit.ShapeOf("rows", 0)); p.Runs == 0 {
			t.Fatal("what was saved is lost")
		}
	}
	must.Do(t, new(admit.Model).Save(path))
	if entries := must.Get(os.ReadDir(filepath.Dir(path)))(t); len(entries) != 1 {
		t.Error("drafts are left:", entries)
	}
}

// A change that a model has noticed, and a job that it forgot, do not come back from the file.
func TestWhatIsForgottenStaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peaks")
	m := known()
	must.Do(t, m.Save(path))
	m.Forget("join")
	for range 60 {
		m.Observe("\"odd\"\n", admit.Shape{}, 1<<20) // 2^40 before
	}
	now := m.Predict("\"odd\"\n", admit.Shape{})
	for range 2 {
		must.Do(t, m.Save(path))
		file := must.Get(admit.Load(path))(t)
		if p := file.Predict("join", admit.ShapeOf("rows", 5).And("columns", 5)); p.Runs != 0 {
			t.Errorf("a forgotten job is back: %+v", p)
		}
		if p := file.Predict("\"odd\"\n", admit.Shape{}); !near(p.Bytes, now.Bytes) || p.Runs > 60+64 {
			t.Errorf("after a change %+v is predicted, and from the file %+v", now, p)
		}
	}
	m.Observe("join", admit.ShapeOf("rows", 5).And("columns", 5), 7)
	must.Do(t, m.Save(path))
	if p := must.Get(admit.Load(path))(t).Predict("join", admit.ShapeOf("rows", 5).And("columns", 5)); p.Runs != 1 {
		t.Errorf("after it has run again: %+v", p)
	}
}

// A model takes over from the file what it does not know, and of too many kinds those are kept that
// ran last.
func TestOfTooManyKindsTheLastAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peaks")
	old, young := new(admit.Model), new(admit.Model)
	for i := range 200 {
		old.Observe(fmt.Sprint("old", i), admit.Shape{}, 5)
	}
	for i := range 200 {
		young.Observe(fmt.Sprint("young", i), admit.Shape{}, 5)
	}
	must.Do(t, old.Save(path), young.Save(path))
	for what, m := range map[string]*admit.Model{"the file": must.Get(admit.Load(path))(t), "the model": young} {
		for name, want := range map[string]int{"young0": 1, "young199": 1, "old199": 1, "old0": 0} {
			if p := m.Predict(name, admit.Shape{}); p.Runs != want {
				t.Errorf("%s has %d runs of %s", what, p.Runs, name)
			}
		}
	}
}

func TestAFailedSaveLeavesTheFileAsItWas(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "peaks")
	must.Do(t, known().Save(path))
	if err := new(admit.Model).Save(filepath.Join(folder, "none", "peaks")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a folder that is not there:", err)
	}
	must.Do(t, new(admit.Model).Save(path)) // of nothing
	if p := must.Get(admit.Load(path))(t).Predict("scan", admit.ShapeOf("rows", 100)); p.Runs != 256 {
		t.Errorf("a model of nothing has removed what the file had: %+v", p)
	}
	entries := must.Get(os.ReadDir(folder))(t)
	if len(entries) != 1 {
		t.Error("drafts are left:", entries)
	}
}

// TestAModelIsUsedFromManyGoroutines: the race detector looks, and each run is learned.
func TestAModelIsUsedFromManyGoroutines(t *testing.T) {
	m, path := new(admit.Model), filepath.Join(t.TempDir(), "peaks")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 300 {
				s := admit.ShapeOf("rows", i%50)
				m.Observe("job", s, uint64(1000+i%50))
				m.Observe("another", s, uint64(i))
				if p := m.Predict("job", s); p.Low > p.Bytes || p.Bytes == 0 {
					t.Errorf("%+v", p)
				}
				if worker == 0 && i%50 == 0 {
					if err := m.Save(path); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if p := m.Predict("job", admit.ShapeOf("rows", 30)); p.Runs != 256 || p.Bytes < 1030 {
		t.Errorf("%+v", p)
	}
}

// A file of another kind is not learned from, and nothing replaces it.
func TestAFileOfAnotherKindStaysAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	must.Do(t, known().Save(path))
	peaks := string(must.Get(os.ReadFile(path))(t))
	_, curves, _ := strings.Cut(peaks, "\n")
	for _, text := range []string{"my notes", "{}", "[]", "null", "00000000", "f-stop", "fenced gardens", "fencepost-demo, a log",
		"fencepost-admit: notes of what it keeps", "\x1f\x8b\x08\x00\x00", "\x89PNG\r\n\x1a\n", strings.Repeat("\x00", 512) + "an image",
		"\xef\xbb\xbfnotes", "\n\nnotes", "notes\n" + peaks, "notes: " + curves, "caf\u00e9 au lait, s'il vous plai\u0302t\n" + curves,
		"peaks" + strings.Repeat("\x00", 507) + peaks, `[{"job":"nightly","runs":[1,2]}]`} {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		if m, err := admit.Load(path); m != nil || err == nil || errors.Is(err, admit.ErrModelFile) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%q is loaded as %v, %v", text, m, err)
		}
		if err := known().Save(path); err == nil {
			t.Errorf("%q is replaced", text)
		}
		if got := must.Get(os.ReadFile(path))(t); string(got) != text {
			t.Errorf("%q became %d other bytes", text, len(got))
		}
	}
}
