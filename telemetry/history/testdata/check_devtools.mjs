// Reads a trace with the engine of Chrome's DevTools, and compares what it made
// of it with the file: every process and track is there by its name, and has
// every slice, with its name, begin and duration.
//
//   npm install --no-save --ignore-scripts @paulirish/trace_engine@0.0.65
//   node check_devtools.mjs FILE
import {readFileSync} from 'node:fs';
import * as Trace from '@paulirish/trace_engine/models/trace/trace.js';

globalThis.DOMRect = class {};

const {traceEvents} = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const model = Trace.TraceModel.Model.createWithAllHandlers();
await model.parse(traceEvents);
const {Renderer} = model.parsedTrace().data;

// Microseconds, to the nanosecond: what both sides have of a slice.
const line = e => `${e.name} ${e.ts.toFixed(3)} ${(e.dur ?? 0).toFixed(3)}`;
const names = new Map(), want = new Map();
for (const e of traceEvents) {
  const key = `${e.pid}/${e.tid}`;
  if (e.name === 'thread_name') names.set(key, e.args.name);
  if (e.ph === 'X') want.set(key, [...want.get(key) ?? [], line(e)]);
}
let wrong = 0, slices = 0;
for (const [key, lines] of want) {
  const [pid, tid] = key.split('/').map(Number);
  const thread = Renderer.processes.get(pid)?.threads.get(tid);
  const got = (thread?.entries ?? []).filter(e => e.ph === 'X').map(line);
  slices += got.length;
  if (thread?.name !== names.get(key) || got.sort().join('\n') !== lines.sort().join('\n')) {
    console.log(`${key}: ${names.get(key)} has ${lines.length} slices; read as ${thread?.name} with ${got.length}`);
    wrong++;
  }
}
console.log(`${want.size} tracks, ${slices} slices, ${wrong} tracks wrong`);
process.exit(wrong || !slices ? 1 : 0);
