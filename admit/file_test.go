package admit_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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

func TestAFailedSaveLeavesTheFileAsItWas(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "peaks")
	must.Do(t, known().Save(path))
	if err := new(admit.Model).Save(filepath.Join(folder, "none", "peaks")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a folder that is not there:", err)
	}
	must.Do(t, new(admit.Model).Save(path)) // of nothing
	if p := must.Get(admit.Load(path))(t).Predict("scan", admit.ShapeOf("rows", 100)); p.Runs != 0 {
		t.Errorf("a model of nothing knows %+v", p)
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
