package coretest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

var conflictCases = []testCase{
	{name: "a conflicting intent on another stream is refused by name", needs: core.UseTracking, run: (*trial).conflictsAreRefused},
	{name: "intents on one stream do not conflict", needs: core.UseTracking, run: (*trial).oneStreamAdmitsAll},
	{name: "reads on several streams go together", needs: core.UseTracking, run: (*trial).readsTogether},
	{name: "a conflicting intent is waited for on request", needs: core.UseTracking, run: (*trial).waitForIntent},
	{name: "the wait for an intent ends with the context", needs: core.UseTracking, run: (*trial).waitIsBounded},
	{name: "a block freed during the wait is refused", needs: core.UseTracking, run: (*trial).freedDuringWait},
	{name: "conflicting intents exclude each other", needs: core.UseTracking, run: (*trial).exclusion},
}

var accesses = []core.Access{core.Read, core.Write, core.ReadWrite}

func (t *trial) conflictsAreRefused() {
	one, two := t.Streams(t), t.Streams(t)
	b := t.alloc(64, one)
	for _, held := range accesses {
		for _, asked := range accesses {
			if !held.Conflicts(asked) {
				continue
			}
			holder := t.prepare(one, held, b)
			_, err := t.tryPrepare(two, "late", core.Use{Block: b.ID, Access: asked})
			what := fmt.Sprintf("%v while %v is open", asked, held)
			t.refused(err, what, core.ErrStreamMisuse)
			var misuse *core.StreamMisuseError
			if errors.As(err, &misuse) && misuse.Holder != nil {
				t.check(*misuse.Holder == core.UseRecord{Launch: "holder", Stream: one, Access: held}, "%s: the holder is %+v", what, *misuse.Holder)
			} else {
				t.check(false, "%s: the refusal %v names no holder", what, err)
			}
			t.finish(holder)
			t.finish(t.prepare(two, asked, b))
		}
	}
	t.free(b)
}

func (t *trial) oneStreamAdmitsAll() {
	stream := t.Streams(t)
	b := t.alloc(64, stream)
	for _, held := range accesses {
		for _, asked := range accesses {
			first, second := t.prepare(stream, held, b), t.prepare(stream, asked, b)
			t.finish(second)
			t.finish(first)
		}
	}
	t.free(b)
}

func (t *trial) readsTogether() {
	one, two := t.Streams(t), t.Streams(t)
	b := t.alloc(64, one)
	first, second := t.prepare(one, core.Read, b), t.prepare(two, core.Read, b)
	t.finish(first)
	_, err := t.tryPrepare(one, "late", core.Use{Block: b.ID, Access: core.Write})
	t.refused(err, "a write while another stream's read is open", core.ErrStreamMisuse)
	t.finish(second)
	t.free(b)
}

func (t *trial) prepareWaiting(ctx context.Context, stream core.StreamID, uses ...core.Use) (core.Ticket, error) {
	return t.Resource.PrepareUse(ctx, core.UseRequest{Stream: stream, Launch: "waiting", Uses: uses, Wait: true})
}

func (t *trial) waitForIntent() {
	one, two := t.Streams(t), t.Streams(t)
	b := t.alloc(64, one)
	for _, end := range []func(core.Ticket){t.finish, t.abort} {
		holder := t.prepare(one, core.Write, b)
		var ticket core.Ticket
		var err error
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			ticket, err = t.prepareWaiting(t.ctx, two, core.Use{Block: b.ID, Access: core.Read})
		}()
		select {
		case <-waited:
			t.check(false, "prepare did not wait for the open intent: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		end(holder)
		if t.promptly("the waiting prepare", func() { <-waited }) {
			t.succeed(err, "prepare after the wait")
			t.finish(ticket)
		}
	}
	t.free(b)
}

func (t *trial) waitIsBounded() {
	one, two := t.Streams(t), t.Streams(t)
	b := t.alloc(64, one)
	holder := t.prepare(one, core.Write, b)
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
	defer cancel()
	var err error
	if t.promptly("a prepare whose context ended", func() { _, err = t.prepareWaiting(ctx, two, core.Use{Block: b.ID, Access: core.Read}) }) {
		t.refused(err, "prepare whose context ended", context.DeadlineExceeded)
	}
	t.finish(holder)
	t.finish(t.prepare(two, core.Read, b))
	t.free(b)
}

func (t *trial) freedDuringWait() {
	one, two := t.Streams(t), t.Streams(t)
	b := t.alloc(64, one)
	holder := t.prepare(one, core.Write, b)
	var err error
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, err = t.prepareWaiting(t.ctx, two, core.Use{Block: b.ID, Access: core.Read})
	}()
	time.Sleep(5 * time.Millisecond) // most likely it waits by now; the answer is the same if not
	t.free(b)
	t.finish(holder)
	if t.promptly("the waiting prepare", func() { <-waited }) {
		t.refused(err, "prepare of a block that was freed during the wait", core.ErrUseAfterFree)
	}
}

// exclusion hammers a few blocks from several streams and looks from the
// outside: never may two open intents conflict across streams.
func (t *trial) exclusion() {
	const blocks, streams, rounds = 3, 3, 100
	var all []core.Block
	for range blocks {
		all = append(all, t.alloc(64, core.DefaultStream))
	}
	watch := &exclusionWatch{open: map[core.Generation]map[core.StreamID][2]int{}}
	ids := make([]core.StreamID, streams)
	for i := range ids {
		ids[i] = t.Streams(t)
	}
	t.together(2*streams, func(i int) error {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		for range rounds {
			uses := randomUses(rng, all)
			if err := t.watchedLaunch(watch, ids[i%streams], uses); err != nil {
				return err
			}
		}
		return nil
	})
	for _, b := range all {
		t.free(b)
	}
}

func randomUses(rng *rand.Rand, blocks []core.Block) []core.Use {
	var uses []core.Use
	for _, i := range rng.Perm(len(blocks))[:1+rng.IntN(len(blocks))] {
		uses = append(uses, core.Use{Block: blocks[i].ID, Access: accesses[rng.IntN(len(accesses))]})
	}
	return uses
}

func (t *trial) watchedLaunch(watch *exclusionWatch, stream core.StreamID, uses []core.Use) error {
	ticket, err := t.prepareWaiting(t.ctx, stream, uses...)
	if err != nil {
		return err
	}
	for _, u := range uses {
		err = errors.Join(err, watch.enter(stream, u))
	}
	runtime.Gosched() // lets those in that should be kept out
	for _, u := range uses {
		watch.leave(stream, u)
	}
	return errors.Join(err, t.Resource.FinishUse(t.ctx, ticket))
}

// exclusionWatch counts the open uses of each block on each stream, readers
// and writers apart.
type exclusionWatch struct {
	mu   sync.Mutex
	open map[core.Generation]map[core.StreamID][2]int
}

func (w *exclusionWatch) enter(stream core.StreamID, u core.Use) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(stream, u, 1)
	for other, n := range w.open[u.Block.Generation] {
		if other != stream && (n[1] > 0 || n[0] > 0 && u.Access.Writes()) {
			return fmt.Errorf("%v of %v on stream %v was admitted while stream %v has %d readers and %d writers", u.Access, u.Block, stream, other, n[0], n[1])
		}
	}
	return nil
}

func (w *exclusionWatch) leave(stream core.StreamID, u core.Use) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(stream, u, -1)
}

func (w *exclusionWatch) count(stream core.StreamID, u core.Use, by int) {
	streams := w.open[u.Block.Generation]
	if streams == nil {
		streams = map[core.StreamID][2]int{}
		w.open[u.Block.Generation] = streams
	}
	n := streams[stream]
	if u.Access.Writes() {
		n[1] += by
	} else {
		n[0] += by
	}
	streams[stream] = n
}
