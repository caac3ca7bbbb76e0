package fencepost_test

import (
	"context"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/environ"
)

// odd are 1 MiB of bytes that begin as told, with -short a 16th; no zero bytes, which no variable has.
func odd(t *testing.T, begin string) string {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	bytes, n := []byte(begin), 1<<20
	if testing.Short() {
		n /= 16
	}
	for len(bytes) < n {
		bytes = append(bytes, byte(1+rng.IntN(255)))
	}
	return string(bytes)
}

// begins are how settings begin that are taken for something before they are refused. All take 20
// seconds: for each there is a runtime with each setting. With -short there are two.
var begins = []string{"", "new/", "hunt:", "sample:", "a,", "-", "9", "http://"}

// told asks that err, if there is one, names the field and is short and legible.
func told(t *testing.T, err error, names ...string) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	named := false
	for _, name := range names {
		named = named || strings.Contains(text, name)
	}
	if !named || len(text) > 2<<10 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\x07\x08\x7f") {
		t.Errorf("of %v it says, in %d bytes: %.600q", names, len(text), text)
	}
}

// tries opens a runtime and returns the error.
func tries(t *testing.T, cfg fencepost.Config) error {
	if cfg.Sim.Bytes == 0 {
		cfg.Sim.Bytes = 64 << 20
	}
	checked := cfg.Check()
	rt, err := fencepost.Open(t.Context(), cfg)
	if err == nil {
		_, err = rt.Close(t.Context())
	} else if checked != nil {
		told(t, checked, "")
	}
	return err
}

// Whatever bytes a setting has, and however many: the error names the setting, and can be read.
func TestAnErrorAboutASettingCanBeRead(t *testing.T) {
	t.Chdir(t.TempDir()) // where folders are made of settings
	refused := 0
	for i, begin := range begins {
		if testing.Short() && i == 2 {
			break
		}
		value := odd(t, begin)
		var walk func(name string, at func(*fencepost.Config) reflect.Value, of reflect.Type, depth int)
		walk = func(name string, at func(*fencepost.Config) reflect.Value, of reflect.Type, depth int) {
			switch {
			case of.Kind() == reflect.String, of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.String:
				cfg := fencepost.Config{Device: fencepost.Sim}
				v := at(&cfg)
				if of.Kind() == reflect.Slice {
					v.Set(reflect.MakeSlice(of, 1, 1))
					v = v.Index(0)
				}
				v.SetString(value)
				err := tries(t, cfg)
				if err != nil {
					refused++
				}
				short := name[strings.LastIndex(name, ".")+1:]
				told(t, err, name, short, strings.Split(name, ".")[0])
			case of.Kind() == reflect.Struct && depth < 3:
				for i := range of.NumField() {
					if f := of.Field(i); f.IsExported() {
						walk(strings.TrimPrefix(name+"."+f.Name, "."),
							func(c *fencepost.Config) reflect.Value { return at(c).Field(i) }, f.Type, depth+1)
					}
				}
			}
		}
		walk("", func(c *fencepost.Config) reflect.Value { return reflect.ValueOf(c).Elem() },
			reflect.TypeFor[fencepost.Config](), 0)
	}
	if refused < 10 {
		t.Errorf("only %d settings were refused", refused)
	}
}

// Names that no program writes down: of jobs, shapes, tags and launches, in whatever is refused.
func TestAnErrorAboutANameCanBeRead(t *testing.T) {
	name := odd(t, "")
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Budget: 1 << 20,
		Guard: fencepost.GuardHunt})
	if err != nil {
		t.Fatal(err)
	}
	ctx, tag := t.Context(), core.Tag(name)
	for i := range 20 { // holders, whom a refusal names
		if _, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: tag[i:]}); err != nil {
			t.Fatal(err)
		}
	}
	huge := func(j *fencepost.Job) error { return e2e.ErrorOf(fencepost.Alloc[byte](j, 2<<20)) }
	bound := func(_ any, err error) error { return err }
	known := &admit.Model{}
	shape := admit.ShapeOf(name, 1).And(name+"s", 1)
	for range 10 {
		known.Observe(name, shape, 1<<40)
	}
	gate, err := admit.New(admit.Config{Limit: 1 << 20, Model: known})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"an allocation": e2e.ErrorOf(rt.Allocate(ctx, core.Request{Bytes: 2 << 20, Tag: tag})),
		"a reservation": e2e.ErrorOf(rt.Reserve(ctx, 2<<20, tag)),
		"a job":         rt.Do(ctx, name, huge),
		"an admitted":   rt.Do(ctx, name, huge, fencepost.Admit()),
		"a launch": rt.LaunchNamed(ctx, name, core.DefaultStream, []core.Use{{Block: core.BlockID{Generation: 1 << 40}}},
			func(context.Context) error { return nil }),
		"a gate":   bound(gate.Enter(ctx, name, shape)),
		"a module": bound(rt.Load(name, []byte(name))),
	} {
		if err == nil {
			t.Errorf("%s is not refused", what)
		}
		told(t, err, "")
	}
	_, _ = rt.Close(ctx)
}

func TestAnErrorAboutAVariableCanBeRead(t *testing.T) {
	t.Chdir(t.TempDir()) // where folders are made of settings
	for i, begin := range begins {
		if testing.Short() && i == 2 {
			break
		}
		value := odd(t, begin)
		for _, v := range environ.Variables() {
			t.Setenv(v.Name, value)
			err := tries(t, fencepost.Config{Device: fencepost.Sim})
			if err == nil && v.Field == "Device" {
				t.Errorf("%s is taken", v.Name)
			}
			told(t, err, v.Name)
			if err := os.Unsetenv(v.Name); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(libcuda.PathVariable, value)
		told(t, tries(t, fencepost.Config{Device: fencepost.CUDA}), libcuda.PathVariable)
		if err := os.Unsetenv(libcuda.PathVariable); err != nil {
			t.Fatal(err)
		}
	}
}
