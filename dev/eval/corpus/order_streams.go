package corpus

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// overwriting is raw work on a stream that overwrites a block.
func (w *World) overwriting(s *Stream, b *Mem) Job {
	return s.writes(b.At(0), b.Words(), 0x3C3C3C3C3C3C3C3C)
}

// freedUnderWriter is a case in which a block is freed on its own stream while
// held work on another one is still to write it. wrong and right enqueue that
// work on y.
func freedUnderWriter(name, what, culprit, why string, wrong, right func(w *World, y *Stream, b *Mem)) Case {
	return Case{Name: name, Class: Order, What: what, Kinds: afterFree, Culprit: culprit, Want: onDevice, Why: why, Unmapped: true,
		Run: func(w *World, bug bool) {
			x, y := w.Stream(), w.Stream()
			b := w.Harmed(x, "rows", words, 1)
			w.Sync(x)
			release := w.Hold(y)
			if bug {
				wrong(w, y, b)
				w.Free(b)
				w.Sync(x) // the free is passed, the writer is not
				w.passed()
			} else {
				right(w, y, b)
				w.Free(b)
			}
			release()
			w.settle(y)
		}}
}

// settle waits for the work of a stream that may have been given up, so that a
// late write is there before the program ends.
func (w *World) settle(s *Stream) { w.must(w.Driver().StreamSynchronize(s.Handle())) }

func declaredWrite(w *World, y *Stream, b *Mem) {
	j := w.overwriting(y, b)
	j.Name, j.Uses = "update_rows", []core.Use{b.W()}
	w.Do(j)
}

// orderStreams are frees that come too early for work on another stream.
func orderStreams() []Case {
	return []Case{
		freedUnderWriter("free-during-raw-write", "a block is freed while undeclared work on another stream writes it", "", notTold,
			func(w *World, y *Stream, b *Mem) { w.Raw(w.overwriting(y, b)) }, declaredWrite),
		freedUnderWriter("aborted-after-enqueue", "a launch is aborted although its work was enqueued, and the block is freed", "", "the use was taken back: only bytes on the device show it",
			func(w *World, y *Stream, b *Mem) {
				t, err := w.Core().PrepareUse(w.ctx, core.UseRequest{Stream: y.ID(), Launch: "update_rows", Uses: []core.Use{b.W()}})
				w.must(err)
				w.Raw(w.overwriting(y, b))
				w.must(w.Core().AbortUse(w.ctx, t))
			},
			func(w *World, y *Stream, b *Mem) {
				t, err := w.Core().PrepareUse(w.ctx, core.UseRequest{Stream: y.ID(), Launch: "update_rows", Uses: []core.Use{b.W()}})
				w.must(err)
				w.Raw(w.overwriting(y, b))
				w.must(w.Core().FinishUse(w.ctx, t))
			}),
		freedUnderWriter("declared-on-another-stream", "a launch is declared on the block's stream and enqueued on another, and the block is freed behind the wrong one", "",
			"what was declared is in order: only bytes on the device show where the work went",
			func(w *World, y *Stream, b *Mem) {
				w.must(w.LaunchNamed(w.ctx, "update_rows", b.ID.AllocStream, []core.Use{b.W()}, func(context.Context) error { return w.enqueue(w.overwriting(y, b), y.Handle()) }))
			}, declaredWrite),
		{Name: "write-on-a-stream-given-up", Class: Order, What: "work is enqueued on an adopted stream after its lease was given back, and the block is freed", Kinds: afterFree,
			Want: onDevice, Why: notTold, Unmapped: true,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Adopt()
				b := w.Harmed(x, "rows", words, 1)
				w.Sync(x)
				release := w.Hold(y)
				if !bug {
					declaredWrite(w, y, b)
				}
				w.must(y.Release())
				if bug {
					w.Raw(w.overwriting(y, b))
				}
				w.Free(b)
				if bug {
					w.Sync(x)
					w.passed()
				}
				release()
				w.settle(y)
			}},
		{Name: "free-during-raw-read", Class: Order, What: "a block is freed while undeclared work on another stream reads it",
			Kinds: lateRead, Want: nowhere, Why: changesNothing, Unmapped: true,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				w.Sync(x)
				release := w.Hold(y)
				if bug {
					w.Raw(y.reads(b.At(0), words))
				} else {
					w.Read("use_rows", y, b)
				}
				w.Free(b)
				if bug {
					w.Sync(x)
					w.passed()
				}
				release()
				w.settle(y)
			}},
		{Name: "free-during-recorded-read", Class: Order, What: "a raw reader on another stream is recorded after the block was freed", Declared: true,
			Kinds: []core.FindingKind{names.FindingStaleHandle, names.FindingReuseRace, names.FindingMissingFence}, Want: everywhere,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				w.Sync(x)
				release := w.Hold(y)
				w.Raw(y.reads(b.At(0), words))
				if !bug {
					w.must(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
				}
				w.Free(b)
				if bug {
					w.Refused(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
				}
				release()
			}},
		{Name: "reuse-race", Class: Order, What: "a block is freed and its memory allocated again while a raw reader of the old block, recorded too late, still runs", Declared: true,
			Kinds: []core.FindingKind{names.FindingReuseRace, names.FindingStaleHandle}, Want: everywhere,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Enclosed(x, "old", words, 1)
				w.Victim(b.ID)
				w.Sync(x)
				w.must(w.Drain(w.ctx)) // a drain waits for a held stream if memory that it took over is free since
				release := w.Hold(y)
				w.Raw(y.reads(b.At(0), words))
				if !bug {
					w.must(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
					release()
				}
				next := w.Reuse(x, b, "new")
				w.Victim(next.ID)
				w.Write("fill_new", x, next, 2)
				if bug {
					w.Refused(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
				}
				release()
				w.Free(next)
			}},
	}
}
