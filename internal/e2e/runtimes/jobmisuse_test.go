package runtimes_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// A job frees what its function did not. Whoever frees the slice again, or for the first
// time, frees nothing twice: it is a warning about a slice, in every mode.
func TestASliceThatIsFreedAfterItsJobIsAWarning(t *testing.T) {
	for _, guard := range everyGuard {
		for name, inside := range map[string]bool{"inside and after": true, "after": false} {
			t.Run(guard+" "+name, func(t *testing.T) {
				log := &lines{}
				cfg := fencepost.Config{Guard: fencepost.GuardMode(guard), Incidents: t.TempDir()}
				cfg.Findings.Logger = slog.New(slog.NewTextHandler(log, nil))
				rt := e2e.OpenDirty(t, cfg)
				var kept *cuda.Slice[uint32]
				e2e.Succeed(t, "job", rt.Do(t.Context(), "job", func(j *fencepost.Job) (err error) {
					if kept, err = fencepost.Upload(j, []uint32{1, 2}); err != nil || !inside {
						return err
					}
					return kept.Free(t.Context())
				}))
				if err := kept.Free(t.Context()); !errors.Is(err, core.ErrUseAfterFree) || !strings.Contains(err.Error(), "nothing is freed twice") {
					t.Errorf("the free after the job says %v", err)
				}
				f := e2e.Single(t, rt, names.FindingDoubleFree)
				if f.Source != "slice" || !f.Harmless() || f.Victim.ID != kept.BlockID() || !strings.Contains(f.CallStack.Caller(), "jobmisuse_test.go") {
					t.Errorf("found %v of %s", f, f.Source)
				}
				if all := strings.Join(log.all(), "\n"); !strings.Contains(all, "level=WARN") || strings.Contains(all, "level=ERROR") {
					t.Errorf("the log says %s", all)
				}
				if !rt.Health().OK {
					t.Errorf("health %+v", rt.Health())
				}
			})
		}
	}
}

// A freed slice in a launch is said as the program knows it: a slice, the argument's number
// and the place of the call.
func TestAFreedSliceInALaunchIsNamedAsTheProgramKnowsIt(t *testing.T) {
	for _, guard := range everyGuard {
		log := &lines{}
		cfg := fencepost.Config{Guard: fencepost.GuardMode(guard)}
		cfg.Findings.Logger = slog.New(slog.NewTextHandler(log, nil))
		rt := e2e.OpenDirty(t, cfg)
		k := loadAdd(t, rt)
		err := rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
			from, err := fencepost.Upload(j, []uint32{1, 2})
			to, allocErr := fencepost.Alloc[uint32](j, 2)
			e2e.Succeed(t, "memory", errors.Join(err, allocErr, from.Free(t.Context())))
			return j.Launch(k, cuda.Blocks1D(2, 32), fencepost.Writes(to), fencepost.Reads(from), fencepost.Value(uint32(2)), fencepost.Value(uint32(1)))
		})
		if !errors.Is(err, core.ErrUseAfterFree) || !strings.Contains(err.Error(), "a freed slice was passed to Launch as argument 2") {
			t.Errorf("%s: the launch says %v", guard, err)
		}
		if guard == "off" {
			continue
		}
		f := e2e.Single(t, rt, names.FindingStaleHandle)
		if !strings.Contains(f.Text, `a freed slice was passed to Launch "add"`) || !strings.Contains(f.CallStack.Caller(), "jobmisuse_test.go") {
			t.Errorf("%s: found %v", guard, f)
		}
		if all := strings.Join(log.all(), "\n"); !strings.Contains(all, "called_at=") {
			t.Errorf("%s: the log says %s", guard, all)
		}
	}
}

func TestAnotherRuntimesSliceIsRefusedAsSuch(t *testing.T) {
	rt, other := e2e.Open(t, fencepost.Config{}), e2e.Open(t, fencepost.Config{})
	k := loadAdd(t, rt)
	err := other.Do(t.Context(), "there", func(there *fencepost.Job) error {
		theirs, err := fencepost.Upload(there, []uint32{1, 2})
		e2e.Succeed(t, "upload", err)
		return rt.Do(t.Context(), "here", func(j *fencepost.Job) error {
			to, err := fencepost.Alloc[uint32](j, 2)
			e2e.Succeed(t, "alloc", err)
			_, downloadErr := fencepost.Download(j, theirs)
			launchErr := j.Launch(k, cuda.Blocks1D(2, 32), fencepost.Writes(to), fencepost.Reads(theirs), fencepost.Value(uint32(2)), fencepost.Value(uint32(1)))
			for what, err := range map[string]error{"from": downloadErr, "argument 2": launchErr} {
				bad, ok := errors.AsType[*core.InvalidRequestError](err)
				if !ok || bad.Field != what || !strings.Contains(err.Error(), "the slice belongs to another runtime") {
					t.Errorf("%s: %v", what, err)
				}
			}
			return nil
		})
	})
	e2e.Succeed(t, "jobs", err)
}
