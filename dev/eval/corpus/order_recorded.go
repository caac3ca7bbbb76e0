package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

var unfenced = []core.FindingKind{names.FindingMissingFence, names.FindingUseBeforeAlloc}

// signal records an event of the program's own on a stream.
func (w *World) signal(s *Stream) driver.Event {
	e, err := w.Driver().EventCreate()
	w.must(err)
	w.after = append(w.after, func() error { return w.Driver().EventDestroy(e) })
	w.must(w.Driver().EventRecord(e, s.Handle()))
	return e
}

// await makes a stream wait for an event of the program's own.
func (w *World) await(s *Stream, e driver.Event) { w.must(w.Driver().StreamWait(s.Handle(), e)) }

// recordedRead is a case in which y reads what x writes, by work that is
// enqueued raw and recorded afterwards. arrange is the order that the program
// makes itself, around the launch of the writer; the twin leaves that to the
// runtime.
func recordedRead(name, what string, arrange func(w *World, x, y *Stream, write func())) Case {
	return Case{Name: name, Class: Order, What: what, Declared: true, Kinds: unfenced, Want: everywhere,
		Run: func(w *World, bug bool) {
			x, y := w.Stream(), w.Stream()
			b := w.Harmed(x, "rows", words, 1)
			w.Sync(x)
			release := w.Hold(x) // so that the host sees nothing done
			write := func() { w.Write("update_rows", x, b, 2) }
			if bug {
				arrange(w, x, y, write)
				w.Raw(y.reads(b.At(0), words))
				w.Refused(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
			} else {
				write()
				w.Read("use_rows", y, b)
			}
			release()
			w.Free(b)
		}}
}

// orderRecorded are uses that are recorded after the fact and bypass the fences.
func orderRecorded() []Case {
	return []Case{
		{Name: "use-before-ready", Class: Order, What: "work on another stream is enqueued before the allocation is ready, and recorded", Declared: true,
			Kinds: unfenced, Want: everywhere,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				release := w.Hold(x)
				b := w.Words(x, "fresh", words)
				w.Victim(b.ID)
				if bug {
					w.Raw(Job{On: y, Enqueue: w.Memset(b.At(0), 1, b.Requested)})
					w.Refused(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
				} else {
					w.Write("fill_fresh", y, b, 1)
				}
				release()
				w.Free(b)
			}},
		recordedRead("no-wait-at-all", "a reader on another stream waits for nothing, and is recorded",
			func(_ *World, _, _ *Stream, write func()) { write() }),
		recordedRead("event-recorded-early", "the event that the reader waits for was recorded before the writer was launched",
			func(w *World, x, y *Stream, write func()) {
				e := w.signal(x)
				write()
				w.await(y, e)
			}),
		recordedRead("event-reused-early", "the event is recorded again, on another stream, before the reader waits for it",
			func(w *World, x, y *Stream, write func()) {
				write()
				e := w.signal(x)
				w.must(w.Driver().EventRecord(e, w.Stream().Handle()))
				w.await(y, e)
			}),
		recordedRead("wait-on-wrong-stream", "the event that the reader waits for is recorded on a stream that has nothing to do with the writer",
			func(w *World, _, y *Stream, write func()) {
				write()
				w.await(y, w.signal(w.Stream()))
			}),
		recordedRead("wait-queued-late", "the reader is enqueued first, and its stream waits for the writer afterwards",
			func(w *World, x, y *Stream, write func()) {
				e, err := w.Driver().EventCreate()
				w.must(err)
				w.after = append(w.after, func() error { return w.Driver().EventDestroy(e) })
				w.await(y, e) // never recorded: waits for nothing
				write()
				w.must(w.Driver().EventRecord(e, x.Handle()))
			}),
		{Name: "default-stream-orders-nothing", Class: Order, What: "a raw write on the default stream is trusted to wait for the other streams, and recorded", Declared: true,
			Kinds: unfenced, Want: everywhere,
			Run: func(w *World, bug bool) {
				x := w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				w.Sync(x)
				release := w.Hold(x)
				w.Write("update_rows", x, b, 2)
				clearing := w.Memset(b.At(0), 0, b.Requested)
				if bug {
					w.must(clearing(0))
					w.Refused(w.Core().RecordBlockUse(w.ctx, b.ID, core.DefaultStream))
				} else {
					w.must(w.launchedOnDefault("clear_rows", []core.Use{b.W()}, clearing))
				}
				release()
				w.Free(b)
			}},
		{Name: "recorded-behind-a-writer", Class: Order, What: "a raw reader is recorded when another stream has been told to overwrite the block already", Declared: true,
			Kinds: unfenced, Want: everywhere,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				w.Sync(x)
				release := w.Hold(x)
				w.Sync(y)
				reader := y.reads(b.At(0), words)
				if bug {
					w.Raw(reader)
					w.Write("overwrite_rows", x, b, 2)
					w.Refused(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
				} else {
					reader.Name, reader.Uses = "use_rows", append(reader.Uses, b.R())
					w.Do(reader)
					w.Write("overwrite_rows", x, b, 2)
				}
				release()
				w.Free(b)
			}},
	}
}
