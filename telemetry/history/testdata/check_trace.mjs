// Reads a trace with a reader that is not ours, @tracerbench/trace-model, and
// says what is in it. The reader refuses slices that overlap without nesting.
//
//   npm install --no-save --ignore-scripts @tracerbench/trace-model@8.0.0
//   node check_trace.mjs FILE
import {readFileSync} from 'node:fs';
import {buildModel} from '@tracerbench/trace-model';

const model = buildModel(JSON.parse(readFileSync(process.argv[2], 'utf8')).traceEvents);
for (const process of model.processes) {
  const slices = process.threads.flatMap(t => t.events).filter(e => e.isComplete());
  const nested = slices.filter(e => e.parent !== undefined).length;
  console.log(`${process.name}: ${process.threads.length} tracks, ${slices.length} slices, ${nested} nested, ${process.events.length} events`);
}
