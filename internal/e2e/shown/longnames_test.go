package shown_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// longest is the longest run of one letter that may come out anywhere.
const longest = names.Max

// wordy goes through everything that takes a name, with long ones.
func wordy(t *testing.T, rt *fencepost.Runtime, tag core.Tag, launch string) {
	t.Helper()
	s := e2e.Lease(t, rt, tag)
	b := e2e.Allocate(t, rt, 1000, s.ID(), tag)
	uses := []core.Use{{Block: b.ID, Access: core.Write}}
	e2e.Succeed(t, "launch", rt.LaunchNamed(t.Context(), launch, s.ID(), uses, func(context.Context) error {
		return rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, s.Handle())
	}))
	graph := must.Get(s.Capture(t.Context(), launch, uses, func(on driver.Stream) error { return rt.Driver().MemsetAsync(b.ID.Ptr, 7, 8, on) }))(t)
	e2e.Succeed(t, "launch of the graph", graph.Launch(t.Context(), rt, s))
	e2e.Succeed(t, "close of the graph", graph.Close())
	claim := must.Get(rt.Reserve(t.Context(), 1000, tag))(t)
	e2e.Succeed(t, "release of the claim", rt.ReleaseClaim(t.Context(), claim.ID))
	e2e.Free(t, rt, b)
	_, twice := rt.Deallocate(t.Context(), b.ID)
	late := rt.LaunchNamed(t.Context(), launch, s.ID(), uses, func(context.Context) error { return nil })
	_, refused := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 40, Stream: s.ID(), Tag: tag})
	_, claimed := rt.Reserve(t.Context(), 1<<40, tag)
	if !errors.Is(twice, core.ErrUseAfterFree) || !errors.Is(late, core.ErrUseAfterFree) || !errors.Is(refused, core.ErrOutOfBudget) || !errors.Is(claimed, core.ErrOutOfBudget) {
		t.Fatalf("the refusals: %.200v, %.200v, %.200v, %.200v", twice, late, refused, claimed)
	}
	held := e2e.Allocate(t, rt, 3000, s.ID(), tag) // shown as live
	t.Cleanup(func() { _, _ = rt.Deallocate(context.Background(), held.ID) })
	e2e.Succeed(t, "drain", rt.Drain(t.Context()))
}

// takesNames are the functions that take names from callers, each with its end, so that only the
// names could be left.
var takesNames = map[string]func(ctx context.Context, rt *fencepost.Runtime, s *cuda.Lease, name string) error{
	"Do": func(ctx context.Context, rt *fencepost.Runtime, _ *cuda.Lease, name string) error {
		return rt.Do(ctx, name, func(j *fencepost.Job) error {
			if _, err := j.Fork(); err != nil {
				return err
			}
			_, err := fencepost.Alloc[byte](j, 100)
			return err
		})
	},
	"Do with Admit": func(ctx context.Context, rt *fencepost.Runtime, _ *cuda.Lease, name string) error {
		return rt.Do(ctx, name, func(*fencepost.Job) error { return nil }, fencepost.Admit(), fencepost.Shape(name, 1),
			fencepost.Shape(name, 2))
	},
	"Do that is refused": func(ctx context.Context, rt *fencepost.Runtime, _ *cuda.Lease, name string) error {
		return refused(rt.Do(ctx, name, func(*fencepost.Job) error { return nil }, fencepost.Reserve(1<<40, 0)))
	},
	"Allocate": func(ctx context.Context, rt *fencepost.Runtime, s *cuda.Lease, name string) error {
		b, err := rt.Allocate(ctx, core.Request{Bytes: 1000, Stream: s.ID(), Tag: core.Tag(name)})
		if err == nil {
			_, err = rt.Deallocate(ctx, b.ID)
		}
		return err
	},
	"Allocate that is refused": func(ctx context.Context, rt *fencepost.Runtime, s *cuda.Lease, name string) error {
		return refused(e2e.ErrorOf(rt.Allocate(ctx, core.Request{Bytes: 1 << 40, Stream: s.ID(), Tag: core.Tag(name)})))
	},
	"cuda.Alloc": func(ctx context.Context, rt *fencepost.Runtime, s *cuda.Lease, name string) error {
		slice, err := cuda.Alloc[byte](ctx, rt.Memory(), 1000, cuda.AllocOptions{Stream: s.ID(), Tag: core.Tag(name)})
		if err == nil {
			err = slice.Free(ctx)
		}
		return err
	},
	"Reserve": func(ctx context.Context, rt *fencepost.Runtime, _ *cuda.Lease, name string) error {
		claim, err := rt.Reserve(ctx, 1000, core.Tag(name))
		if err == nil {
			err = rt.ReleaseClaim(ctx, claim.ID)
		}
		return err
	},
	"Reserve that is refused": func(ctx context.Context, rt *fencepost.Runtime, _ *cuda.Lease, name string) error {
		return refused(e2e.ErrorOf(rt.Reserve(ctx, 1<<40, core.Tag(name))))
	},
	"LaunchNamed": func(ctx context.Context, rt *fencepost.Runtime, s *cuda.Lease, name string) error {
		b, err := rt.Allocate(ctx, core.Request{Bytes: 1000, Stream: s.ID(), Tag: "launches"})
		if err == nil {
			err = rt.LaunchNamed(ctx, name, s.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
				return rt.Driver().MemsetAsync(b.ID.Ptr, 7, 8, s.Handle())
			})
			_, freed := rt.Deallocate(ctx, b.ID)
			err = errors.Join(err, freed)
		}
		return err
	},
	"Capture": func(ctx context.Context, rt *fencepost.Runtime, s *cuda.Lease, name string) error {
		graph, err := s.Capture(ctx, name, nil, func(driver.Stream) error { return nil })
		if err == nil {
			err = errors.Join(graph.Launch(ctx, rt, s), graph.Close())
		}
		return err
	},
	"Acquire": func(ctx context.Context, rt *fencepost.Runtime, _ *cuda.Lease, name string) error {
		s, err := rt.Streams().Acquire(ctx, core.Tag(name))
		if err == nil {
			err = s.Release()
		}
		return err
	},
	"Adopt": func(_ context.Context, rt *fencepost.Runtime, s *cuda.Lease, name string) error {
		handle, err := rt.Driver().StreamCreate()
		if err != nil {
			return err
		}
		adopted, err := rt.Streams().Adopt(handle, core.Tag(name))
		if err == nil {
			err = adopted.Release()
		}
		return errors.Join(err, rt.Driver().StreamDestroy(handle))
	},
	"Load and Kernel": func(_ context.Context, rt *fencepost.Runtime, _ *cuda.Lease, name string) error {
		m, err := rt.Load(name, nil, sim.Kernel{Name: name, Run: func(*sim.Exec) {}})
		if err == nil {
			_, err = m.Kernel(name)
			err = errors.Join(err, m.Unload())
		}
		return err
	},
	"Gate.Enter": func(ctx context.Context, _ *fencepost.Runtime, _ *cuda.Lease, name string) error {
		a, err := namedGate.Enter(ctx, name, admit.ShapeOf(name, 1).And(name, 2))
		if err == nil {
			err = a.Observe(100)
			a.Leave()
		}
		return err
	},
	"Model": func(_ context.Context, _ *fencepost.Runtime, _ *cuda.Lease, name string) error {
		namedModel.Observe(name, admit.ShapeOf(name, 1), 5)
		namedModel.Forget(name)
		namedModel.Observe(name+"2", admit.Shape{}.And(name, 1), 5)
		return nil
	},
}

var (
	namedModel   = new(admit.Model)
	namedGate, _ = admit.New(admit.Config{Limit: 1 << 20, Model: namedModel})
)

// refused is an error of a refusal that is none.
func refused(err error) error {
	if errors.Is(err, core.ErrOutOfBudget) {
		return nil
	}
	return fmt.Errorf("it was not refused: %w", err)
}

// Every function that takes a name is given long ones, and names that are no UTF-8. None of them is
// kept whole.
func TestALongNameIsNotKept(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 64 << 20, LogLevel: logging.Uses})
	s := e2e.Lease(t, rt, "s")
	for what, take := range takesNames {
		before := heapInUse()
		for i := range 16 {
			name := fmt.Sprint(what, i, strings.Repeat("n", 1<<20), "\xff")
			e2e.Succeed(t, what, take(t.Context(), rt, s, name))
			e2e.Succeed(t, what+" of a short name", take(t.Context(), rt, s, fmt.Sprint(what, i, "\xff")))
		}
		if grown := heapInUse() - before; grown > 4<<20 {
			t.Errorf("%s: 16 names of a MiB leave %d bytes", what, grown)
		}
	}
	for text := range map[string]bool{e2e.Gather(t, rt): true, e2e.Read(t, saved(t)): true} {
		if !utf8.ValidString(text) {
			t.Error("a name that is no UTF-8 came out")
		}
	}
}

// saved is a file of what was learned of all these names. It is read again.
func saved(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "learned")
	must.Do(t, namedModel.Save(path))
	again := must.Get(admit.Load(path))(t)
	if p := again.Predict("Gate.Enter1\xff", admit.ShapeOf("Gate.Enter1\xff", 1).And("Gate.Enter1\xff", 2)); p.Runs != 1 {
		t.Errorf("what was learned of a name that is no UTF-8 is lost: %+v", p)
	}
	return path
}

func TestANameThatIsNoUTF8IsValidWhereverItShows(t *testing.T) {
	for _, level := range []string{"off", "ledger", "sample", "hunt"} {
		t.Run(level, func(t *testing.T) {
			var lines, csv bytes.Buffer
			var text, found e2e.LockedText
			sinks := []logging.Sink{logging.NewJSONSink(&lines, logging.Queue{}), logging.NewCSVSink(&csv, logging.Queue{}),
				logging.NewSlogSink(slog.New(slog.NewTextHandler(&text, nil)), logging.Queue{})}
			cfg := fencepost.Config{Guard: fencepost.GuardMode(level), Budget: 64 << 20, LogLevel: logging.Uses,
				LogSinks: sinks, Incidents: filepath.Join(t.TempDir(), "i")}
			cfg.Findings.Logger = slog.New(slog.NewTextHandler(&found, nil))
			cfg.GuardConfig.HuntTags = []core.Tag{"tag\xff"}
			rt, recorder := e2e.TracedRuntime(t, cfg)
			wordy(t, rt, "tag\xff", "launch\xfe")
			s := e2e.Lease(t, rt, "s")
			for what, take := range takesNames {
				e2e.Succeed(t, what, take(t.Context(), rt, s, what+"\xff"))
			}
			shown := everythingShown(t, rt, recorder)
			for _, s := range sinks {
				e2e.Succeed(t, "close of a sink", s.Close(t.Context()))
			}
			shown["json lines"], shown["csv"], shown["slog"], shown["log of findings"] = lines.String(), csv.String(),
				text.String(), found.String()
			for place, text := range shown {
				if !strings.HasSuffix(place, "pytorch") && !utf8.ValidString(text) || // that one is a pickle, of bytes
					strings.Contains(text, `\xff`) || strings.Contains(text, `\xfe`) {
					t.Errorf("%s has a name that is no UTF-8", place)
				}
			}
		})
	}
}

// everythingShown is what a runtime shows people, by the place.
func everythingShown(t *testing.T, rt *fencepost.Runtime, recorder *tracetest.SpanRecorder) map[string]string {
	t.Helper()
	handler := must.Get(fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}}))(t)
	shown := map[string]string{}
	for _, path := range []string{"/metrics", "/debug/gpumem/state", "/debug/gpumem/history", "/debug/gpumem/history?format=perfetto", "/debug/gpumem/history?format=pytorch", "/debug/gpumem/guard"} {
		answer := e2e.Request(handler, http.MethodGet, path, "")
		if answer.Code != http.StatusOK {
			t.Fatalf("%s: %d", path, answer.Code)
		}
		shown[path] = answer.Body.String()
	}
	for _, s := range recorder.Ended() {
		shown["spans"] += fmt.Sprintln(s.Name(), s.Attributes(), s.Events(), s.Status())
	}
	for _, f := range rt.Findings().Recent() {
		shown["findings"] += f.String() + "\n"
	}
	for _, s := range rt.Streams().Leases() {
		shown["leases"] += string(s.Tag)
	}
	e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
	for _, path := range rt.Incidents().Files() {
		shown["incidents"] += e2e.Read(t, path)
	}
	return shown
}

func TestALongNameIsCutWhereverItShows(t *testing.T) {
	tag, launch := core.Tag(strings.Repeat("t", 70_000)), strings.Repeat("k", 70_000)
	for _, level := range []string{"off", "ledger", "sample", "hunt"} {
		t.Run(level, func(t *testing.T) {
			var lines, csv bytes.Buffer
			var text, found e2e.LockedText
			sinks := []logging.Sink{logging.NewJSONSink(&lines, logging.Queue{}), logging.NewCSVSink(&csv, logging.Queue{}),
				logging.NewSlogSink(slog.New(slog.NewTextHandler(&text, nil)), logging.Queue{})}
			cfg := fencepost.Config{Guard: fencepost.GuardMode(level), Budget: 64 << 20, LogLevel: logging.Uses, LogSinks: sinks, Incidents: filepath.Join(t.TempDir(), "i")}
			cfg.Findings.Logger = slog.New(slog.NewTextHandler(&found, nil))
			cfg.GuardConfig.HuntTags = []core.Tag{tag}
			rt, recorder := e2e.TracedRuntime(t, cfg)
			wordy(t, rt, tag, launch)
			shown := everythingShown(t, rt, recorder)
			for _, s := range sinks {
				e2e.Succeed(t, "close of a sink", s.Close(t.Context()))
			}
			shown["json lines"], shown["csv"], shown["slog"], shown["log of findings"] = lines.String(), csv.String(), text.String(), found.String()
			for place, text := range shown {
				if strings.Contains(text, strings.Repeat("t", longest)) || strings.Contains(text, strings.Repeat("k", longest)) {
					t.Errorf("%s has a name that is too long", place)
				}
				if place != "csv" && place != "leases" && !strings.Contains(text, strings.Repeat("t", 64)) && (level != "off" || !slices.Contains([]string{"findings", "incidents", "log of findings"}, place)) {
					t.Errorf("%s does not show the tag: the test sees nothing", place)
				}
			}
			if level == "sample" && rt.Guard().GuardStats().Guarded == 0 {
				t.Error("a long tag is not hunted under its name")
			}
		})
	}
}

func TestTwoLongTagsWithOneBeginningAreAccountedApart(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	s := e2e.Lease(t, rt, "s")
	long := strings.Repeat("t", 70_000)
	a, b := e2e.Allocate(t, rt, 1000, s.ID(), core.Tag(long+"a")), e2e.Allocate(t, rt, 1000, s.ID(), core.Tag(long+"b"))
	tags := map[core.Tag]bool{}
	for _, h := range rt.Budget().Holders() {
		tags[h.Tag] = true
	}
	if len(tags) != 2 || a.Tag == b.Tag {
		t.Errorf("%d tags hold memory: %v", len(tags), tags)
	}
	e2e.Free(t, rt, a, b)
}
