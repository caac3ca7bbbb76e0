// Package dump keeps what happened: it writes the history of a runtime into a
// folder at the moments that operators will ask about, because the ring that
// holds it goes on turning.
//
// A dump is one history in the three forms of package history:
//
//	TIME-NUMBER-dump-TRIGGER.jsonl.gz       for fencepost replay and history, gzipped
//	TIME-NUMBER-dump-TRIGGER.trace.json.gz  for ui.perfetto.dev, gzipped
//	TIME-NUMBER-dump-TRIGGER.pickle         for pytorch.org/memory_viz
//
// The folder never holds more than a number of files and bytes of dumps: the
// oldest go. It may be that of the incidents, which are counted on their own.
package dump
