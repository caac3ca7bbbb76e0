package coretest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// mutants are resources that are wrong in one way each, and the case that
// must notice. A suite is only worth what it catches.
var mutants = []struct {
	bug, caughtBy string
	open          func(t *testing.T) Subject
}{
	{"zero bytes become one", "zero bytes are refused clearly", mutate(onRequest(func(r *core.Request) { r.Bytes = max(r.Bytes, 1) }))},
	{"pointers are off by eight", "sizes from 4 B to 1 GiB are aligned", mutate(onAllocate(func(b *core.Block) { b.ID.Ptr += 8 }))},
	{"a pebibyte is found", "a pebibyte is out of memory", mutate(onRequest(func(r *core.Request) { r.Bytes = min(r.Bytes, gib) }))},
	{"all blocks start at one address", "two live blocks differ", mutate(onAllocate(func(b *core.Block) { b.ID.Ptr = 0x10000 }))},
	{"blocks overlap by a little", "a hundred random sizes", mutate(onRequest(func(r *core.Request) { r.Bytes, r.Requested = r.Bytes/2+1, 0 }))},
	{"blocks overlap in mixed use", "mixed allocations and frees", mutate(onAllocate(func(b *core.Block) { b.ID.Ptr = b.ID.Ptr % mib &^ 255 }))},
	{"alignment is not checked", "malformed requests are refused", mutate(onRequest(func(r *core.Request) { r.Align = 0 }))},
	{"the tag is lost", "a block carries what was asked", mutate(onRequest(func(r *core.Request) { r.Tag = "" }))},
	{"long tags are kept whole", "names that are too long are cut alike", mutate(func(m *mutant) {
		m.allocate = func(ctx context.Context, r core.Request) (core.Block, error) {
			b, err := m.Fake.Allocate(ctx, r)
			if b.Tag != names.Untagged {
				b.Tag = r.Tag
			}
			return b, err
		}
	})},
	{"the names of launches are kept whole", "names that are too long are cut alike", mutate(func(m *mutant) {
		m.prepare = func(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
			t, err := m.Fake.PrepareUse(ctx, r)
			if err == nil {
				t.Intent().Launch = r.Launch
			}
			return t, err
		}
	})},
	{"padding is taken for a request", "a block carries what was asked", mutate(onRequest(func(r *core.Request) { r.Requested = 0 }))},
	{"generations repeat", "generations are unique across goroutines", mutate(onAllocate(func(b *core.Block) { b.ID.Generation = 1 + b.ID.Generation/2 }))},
	{"a stale handle reaches the newest block", "a stale handle is refused everywhere", mutate(onID(newestBlock))},
	{"an unknown free is ignored", "an invented handle is refused everywhere", mutate(onFree(forgive(core.Freed)))},
	{"a double free is ignored", "a double free is refused", mutate(onFree(forgive(core.Retired)))},
	{"the ordinal is ignored", "another device's block is refused everywhere", mutate(onID(func(_ *mutant, id core.BlockID) core.BlockID { id.Ordinal = 0; return id }))},
	{"the pointer is ignored", "a pointer outside the block is refused everywhere", mutate(onID(exactPointer))},
	{"pointers into a block are refused", "a pointer inside the block is accepted", mutate(onID(onlyFirstByte))},
	{"unknown streams are taken for the default", "a stream that is not leased is refused", mutate(onUses(func(r *core.UseRequest) { r.Stream = 0 }))},
	{"leases are reused", "a released lease is refused and its blocks can be freed", sameStream},
	{"a failed free consumes the block", "a failed free consumes nothing", failAfterFree},
	{"open intents do not hold frees back", "a free waits for an open intent that is finished", freeAtOnce},
	{"the first end of an intent lets the free through", "a free waits for the last of several intents", oneEndEndsAll},
	{"retired blocks take uses", "a retired block takes no new use", retiredTakesUses},
	{"a ticket can be spent twice", "a ticket is used once", spentTwice},
	{"foreign tickets are ignored", "a ticket ends where it was given", spentTwice},
	{"all concurrent ends win", "of concurrent ends exactly one wins", spentTwice},
	{"an abort counts as a launch", "an abort leaves no trace", mutate(func(m *mutant) { m.abort = m.Fake.FinishUse })},
	{"a refused launch keeps half its blocks", "a launch prepares all its blocks or none", halfPrepared},
	{"the last declared access wins", "a block named twice counts once", mutate(onUses(func(r *core.UseRequest) { r.Uses = r.Uses[len(r.Uses)-1:] }))},
	{"the launch has no name", "an intent knows its blocks", mutate(onUses(func(r *core.UseRequest) { r.Launch = "" }))},
	{"the refusal names nobody", "a conflicting intent on another stream is refused by name", namelessConflict},
	{"reads conflict", "reads on several streams go together", mutate(onUses(func(r *core.UseRequest) { upgrade(r.Uses) }))},
	{"a stream conflicts with itself", "intents on one stream do not conflict", everyIntentItsStream},
	{"waits are refused", "a conflicting intent is waited for on request", mutate(onUses(func(r *core.UseRequest) { r.Wait = false }))},
	{"the wait ignores its context", "the wait for an intent ends with the context", waitForever},
	{"the wait spins past the free", "a block freed during the wait is refused", waitsThenOpens},
	{"conflicts are not seen", "conflicting intents exclude each other", mutate(onUses(func(r *core.UseRequest) { r.Uses = nil }))},
	{"live bytes drift", "statistics are exact in requested bytes", mutate(driftingStats)},
	{"the peak is the present", "statistics are exact in requested bytes", mutate(onStats(func(s *core.Stats) { s.PeakRequested = s.Live.Requested }))},
	{"frees count twice in the free counters", "the free counters are exact and never run back", mutate(doubleFreeCounters)},
	{"releases are told twice", "a release is told exactly once, whichever goroutine reaps", mutate(onNotice(2, func(*core.Block) {}))},
	{"releases are not told", "a block lives, retires and is freed", mutate(onNotice(0, func(*core.Block) {}))},
	{"releases forget the tag", "generations increase", mutate(onNotice(1, func(b *core.Block) { b.Tag = "" }))},
	{"releases forget the size", "generations increase", mutate(onNotice(1, func(b *core.Block) { b.Requested++ }))},
	{"drain does nothing", "drain leaves nothing outstanding", mutate(func(m *mutant) { m.drain = func(context.Context) error { return nil } })},
	{"an intent stays open", "generations increase", mutate(onStats(func(s *core.Stats) { s.OpenIntents++ }))},
	{"a counter ran below zero", "generations increase", mutate(onStats(func(s *core.Stats) { s.Underflows++ }))},
	{"a layer widens features", "layers narrow features and never widen them", boast(core.UseTracking<<8, "")},
	{"a layer hides its upstream", "layers agree on who they are", boast(0, "mystery")},
	{"a listing does not stop", "the blocks can be listed", mutate(func(m *mutant) {
		m.blocksFunc = func(yield func(core.BlockInfo) bool) {
			m.Fake.Inspect().Blocks(func(i core.BlockInfo) bool { yield(i); return true })
		}
	})},
	{"a layer forwards nothing of what is known", "the blocks can be listed", layered(func(d *deaf) { d.inspector = core.Unsupported{}.Inspect() })},
	{"a layer forwards the blocks alone", "each layer tells what its backend knows", layered(func(d *deaf) {
		d.inspector = listing{core.Unsupported{}.Inspect(), d.Resource.Inspect().Blocks}
	})},
	{"a layer keeps to itself what is withheld", "what is withheld is in no peak", layered(func(d *deaf) { d.withhold = func(core.BlockID, core.BlockState) {} })},
	{"a layer keeps the account to itself", "an account follows its blocks", mutate(onRequest(func(r *core.Request) { r.Account = nil }))},
	{"a check gives live blocks back", "a live block can be checked and stays live", layered(func(d *deaf) {
		d.check = func(ctx context.Context) (err error) {
			d.Resource.Inspect().Blocks(func(info core.BlockInfo) bool {
				_, err = d.Deallocate(ctx, info.Block.ID)
				return err == nil
			})
			return err
		}
	})},
	{"reservations are pretended", "without reservations a claim is refused as unsupported", mutate(func(m *mutant) {
		m.reserve = func(context.Context, uint64, core.Tag) (core.Claim, error) { return core.Claim{}, nil }
	})},
	{"isolation is ignored", "without isolation an isolated block is refused as unsupported", mutate(onRequest(func(r *core.Request) { r.Isolated = false }))},
	{"isolated blocks share an address", "an isolated block lives like any other and does not come again", mutate(func(m *mutant) {
		m.Isolate(mib)
		m.features |= core.Isolation
		onAllocate(func(b *core.Block) { b.ID.Ptr = 0x10000 })(m)
	})},
	{"use tracking is pretended", "without use tracking uses are refused as unsupported", mutate(func(m *mutant) { m.features = core.StreamOrdered })},
	{"recorded uses are not checked", "a stale handle is refused everywhere", mutate(func(m *mutant) {
		m.record = func(context.Context, core.BlockID, core.StreamID) error { return nil }
	})},
	{"a zero ticket crashes", "zero values are refused without a panic", mutate(func(m *mutant) {
		m.finish = func(ctx context.Context, t core.Ticket) error { _ = t.Intent().ID; return m.Fake.FinishUse(ctx, t) }
	})},
	{"a feature was lost", atOnce, forgetful},
	{"blocks come back to life", "a block lives, retires and is freed", mutate(func(m *mutant) { m.state = func(core.BlockID) core.BlockState { return core.Live } })},

	{"a claim can be released twice", "a claim is granted and given back", claimBug("a claim can be released twice")},
	{"a released claim can be drawn from", "a claim is granted and given back", claimBug("a released claim can be drawn from")},
	{"an allocation does not draw from its claim", "a claim is granted and given back", claimBug("an allocation does not draw from its claim")},
	{"a claim is cut to what is left", "a claim is granted whole or refused", claimBug("a claim is cut to what is left")},

	{"prepare queues no waits", "a read waits for a write on another stream", fencing(prepareQueuesNoWaits)},
	{"prepare queues no waits for reads", "a write waits for reads on other streams", fencing(prepareQueuesNoWaits)},
	{"reads are serialised", "reads on two streams overlap", fencing(readsAreSerialised)},
	{"the free forgets readers", "memory is reused only after all its readers", fencing(freeForgetsReaders)},
	{"the free forgets newer readers", "memory is reused only after all its readers", fencing(freeForgetsNewerReaders)},
	{"a recorded use is forgotten", "memory is reused only after a recorded use", fencing(recordIsForgotten)},
	{"the free ignores its stream", "bytes survive a merge of freed memory across streams", fencing(freeIgnoresItsStream)},
	{"reap blocks", "reap does not block and releases nothing early", fencing(reapBlocks)},
	{"reap releases early", "reap does not block and releases nothing early", fencing(freeIgnoresItsStream)},
	{"drain ignores its context", "drain waits for the device and heeds its context", fencing(drainIgnoresContext)},
}

const mutantVariable = "FENCEPOST_CORETEST_MUTANT"

// atOnce stands for the case of mutants that are refused before any case runs.
const atOnce = ""

// TestMutant runs one case over one mutant; only TestSuiteCatchesMutants
// starts it, in a process of its own, because it is to fail.
func TestMutant(t *testing.T) {
	bug := os.Getenv(mutantVariable)
	if bug == "" {
		return
	}
	patience = 200 * time.Millisecond
	for _, m := range mutants {
		if m.bug == bug {
			Run(t, m.open)
		}
	}
}

func TestSuiteCatchesMutants(t *testing.T) {
	known := map[string]bool{}
	for _, c := range cases() {
		known[c.name] = true
	}
	for _, m := range mutants {
		t.Run(m.bug, func(t *testing.T) {
			t.Parallel()
			if m.caughtBy != atOnce && !known[m.caughtBy] {
				t.Fatalf("no case is called %q", m.caughtBy)
			}
			for range 3 { // some bugs show only if the goroutines meet
				if noticed(t, m.bug, m.caughtBy) {
					return
				}
			}
			t.Errorf("case %q did not notice", m.caughtBy)
		})
	}
}

// noticed runs the mutant in another process and reports whether the case
// failed, by its checks or by a crash.
func noticed(t *testing.T, bug, caughtBy string) bool {
	self, err := os.Executable()
	must.Do(t, err)
	pattern, failure := "^TestMutant$", "--- FAIL: TestMutant"
	if caughtBy != atOnce {
		pattern, failure = pattern+"/^"+subtestName(caughtBy)+"$", failure+"/"+subtestName(caughtBy)
	}
	cmd := exec.Command(self, "-test.run="+pattern, "-test.timeout=30s")
	cmd.Env = append(os.Environ(), mutantVariable+"="+bug)
	output, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return err != nil && (strings.Contains(string(output), failure) || strings.Contains(string(output), "panic:"))
}

// subtestName is how the testing package writes the name of a case.
func subtestName(name string) string { return strings.ReplaceAll(name, " ", "_") }
