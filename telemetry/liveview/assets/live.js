import { Chart } from "./chart.js";
import { details, failed, loading } from "./details.js";
import { byID, el, keyed, setText } from "./dom.js";
import { dumpWhenAsked, files } from "./files.js";
import { bytes, clock, duration, percent } from "./format.js";
import { AddressMap } from "./map.js";
import * as news from "./news.js";
import { Tags, onTheme } from "./palette.js";
import { fill } from "./past.js";
import * as panels from "./panels.js";
import { timeline } from "./timeline.js";

const interval = 1000; // ms between answers and the next question
const patience = 10_000; // ms for an answer
const kept = 900; // seconds that the chart reaches back
const gap = 4; // seconds without a sample for which the server is asked, and which are blank if the page did not look

/** memories are what the page keeps of each device, by ordinal. */
const memories = new Map();
let device = null; // ordinal that is shown; null until the first answer
let pid = null;
let paused = false;
let answered = 0;
let pointed = null; // sample of the chart that is pointed at
let timer = 0;
let looked = true; // it has asked for this device ever since the last answer: one that took long is no gap

const memory = () => {
  if (!memories.has(device)) memories.set(device, { samples: [], tags: new Tags(), map: null, findings: 0, refusals: 0, news: { findings: [], refusals: [] }, last: null });
  return memories.get(device);
};

const chart = new Chart(byID("chart"), (sample) => {
  pointed = sample?.live ? sample : null;
  drawTags();
});
const map = new AddressMap(byID("map"), byID("tip"), async ({ from, size, generation }) => {
  loading();
  try {
    const to = `0x${(BigInt(from) + BigInt(Math.max(1, Math.ceil(size)))).toString(16)}`;
    const response = await fetch(`blocks?device=${device}&from=${from}&to=${to}`);
    if (!response.ok) throw new Error(await response.text());
    details(await response.json(), generation);
  } catch (error) {
    failed(error.message);
  }
}, closer);

let asking = false;
let part = { range: null, serial: 0 }; // the closer look that is drawn

/** closer asks for the stretch that the map is to show, one at a time: the newest
 * that was wanted. */
async function closer() {
  const range = map.range;
  byID("zoom-all").disabled = byID("zoom-out").disabled = !range;
  setText(byID("map-range"), map.shownRange);
  if (!range || asking || document.hidden) return;
  asking = true;
  const of = device;
  try {
    const response = await fetch(`map?device=${of}&from=${range.from}&to=${range.to}&map=${part.range === range ? part.serial : 0}`);
    if (!response.ok) throw new Error(await response.text());
    const answer = await response.json();
    if (answer && of === device && range === map.range) {
      part = { range, serial: answer.serial };
      map.showPart(answer);
      setText(byID("map-note"), map.summary);
    }
  } catch (error) {
    setText(byID("map-range"), `${range.from} to ${range.to}: ${error.message}`);
  }
  asking = false;
  if (range !== map.range) closer();
}

async function poll() {
  clearTimeout(timer);
  const abort = new AbortController();
  const late = setTimeout(() => abort.abort(), patience);
  const m = device === null ? null : memory();
  let state = null;
  const query = m ? `?device=${device}&map=${m.map ?? 0}&findings=${m.findings}&refusals=${m.refusals}` : "";
  try {
    const response = await fetch(`state${query}`, { signal: abort.signal });
    if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
    state = await response.json();
  } catch (error) {
    lost(abort.signal.aborted ? `no answer within ${patience / 1000} s` : error.message);
  }
  clearTimeout(late);
  schedule();
  if (!state) return;
  answered = Date.now();
  byID("lost").hidden = true;
  show(state);
}

function schedule() {
  clearTimeout(timer);
  if (paused || document.hidden) looked = false;
  else timer = setTimeout(poll, interval);
}

function lost(why) {
  looked = false;
  setText(byID("lost"), `No answer from the process${answered ? ` since ${clock(answered)}` : ""}: ${why}. What is shown is as of then.`);
  byID("lost").hidden = false;
  health({ state: "unreachable", reasons: [] });
}

function show(state) {
  const d = state.device;
  if (pid !== null && pid !== state.pid) memories.clear(); // another process
  pid = state.pid;
  if (device === null) device = d.ordinal;
  if (d.ordinal !== device) return; // an answer for the device that was shown before
  const m = memory();
  remember(m, state);
  header(state);
  health(d.health ?? { state: "unknown", reasons: [] });
  panels.tiles(d, m.rate);
  panels.budget(d.memory);
  m.tags.settle(d.tags ?? [], (tag) => m.samples.some((s) => s.live?.get(tag) > 0));
  drawChart();
  drawTags();
  map.skew = Date.now() - Date.parse(state.time);
  if (d.map) {
    m.map = d.map.serial;
    map.show(d.map);
    panels.legend(map.dated, map.byTag);
  }
  closer();
  setText(byID("map-note"), map.summary || "no layer lists the blocks");
  if (d.streams) panels.streams(d.streams);
  timeline(device);
  showNews(m, d, "findings");
  showNews(m, d, "refusals");
  files(device, d);
  if (d.guard) panels.guard(d.guard, () => panels.guardForm(() => device, poll));
}

/** remember keeps a sample, and the rates since the last. Where it saw nothing
 * for a while, the server is asked for what it missed. */
function remember(m, state) {
  const { memory: now, counters, tags } = state.device;
  const t = Date.parse(state.time) / 1000;
  const last = m.last?.t ?? 0;
  m.rate = {};
  if (m.last && t > last) {
    for (const [name, n] of Object.entries(counters)) m.rate[name] = Math.max(0, n - m.last.counters[name]) / (t - last);
  }
  const blank = looked && m.last ? gap + (patience + interval) / 1000 : gap;
  looked = true;
  if (m.last && t - last > blank) m.samples.push({ t: (t + last) / 2 });
  if (t - last > gap) look(m, last, t, now.limit, blank);
  m.last = { t, counters, tags };
  const live = new Map((tags ?? []).filter((x) => x.tag).map((x) => [x.tag, x.live]));
  m.samples.push({ t, live, sum: now.live.bytes, quarantined: now.quarantined.bytes, pending: now.pending.bytes, claimed: now.claimed, limit: now.limit });
  m.samples = m.samples.filter((s) => s.t > t - kept);
}

/** look asks for what was there between two moments. A server that does not know
 * leaves it blank. */
async function look(m, from, until, limit, blank) {
  const asked = device;
  try {
    const response = await fetch(`past?device=${asked}`);
    if (!response.ok) return;
    const past = await response.json();
    m.samples = fill(m.samples, past, from, until, limit, blank);
    if (asked !== device || !m.last) return;
    m.tags.settle(m.last.tags ?? [], (tag) => m.samples.some((s) => s.live?.get(tag) > 0));
    drawChart();
  } catch {
    // the next answer says what is wrong with the server
  }
}

function header(state) {
  const several = state.devices.length > 1;
  byID("picker").hidden = !several;
  byID("name").hidden = several;
  setText(byID("name"), state.device.name);
  byID("name").title = [state.device.name, state.device.uuid].filter(Boolean).join("\n");
  keyed(byID("device"), state.devices, (x) => x.ordinal, (x) => el("option", { value: x.ordinal }), (option, x) => {
    setText(option, `${x.name}${x.limit ? ` · ${percent(x.charged, x.limit)}` : ""}${x.health && x.health !== "ok" ? ` · ${x.health}` : ""}`);
    option.selected = x.ordinal === device;
  });
  keyed(byID("links"), state.links, (x) => x.href, (x) => el("a", { textContent: x.text }), (a, x) => {
    const to = new URL(x.href, document.baseURI);
    if (several) to.searchParams.set("device", device);
    a.href = to.href;
  });
  setText(byID("stack"), `${state.device.stack} · pid ${state.pid}`);
  document.title = `${state.device.health && state.device.health.state !== "ok" ? `(${state.device.health.state}) ` : ""}${percent(state.device.memory.charged, state.device.memory.limit)} GPU memory`;
}

function health(h) {
  const pill = byID("health");
  pill.dataset.state = h.state;
  setText(pill.lastChild, h.state);
  const list = byID("reasons");
  if (h.state === "unreachable") return;
  const shown = [...(h.reasons ?? []), ...(h.notes ?? [])];
  list.hidden = !shown.length;
  list.dataset.state = h.state;
  keyed(list, shown, (r) => r.reason, () => el("li", {}, el("b"), el("span"), el("span", { className: "quiet" })), (node, r) => {
    setText(node.children[0], r.reason.replaceAll("_", " "));
    setText(node.children[1], r.text);
    setText(node.children[2], r.since && !r.since.startsWith("0001") ? `since ${clock(r.since)}` : "");
  });
}

function drawChart() {
  const m = memory();
  const { limit, shown } = chart.show(m.samples, m.tags);
  setText(byID("scale-note"), !limit ? "" : shown ? `dashed: the budget, ${bytes(limit)}` : `the budget of ${bytes(limit)} is above the scale`);
  byID("scale").hidden = !limit;
  panels.layers(m.samples);
}

function drawTags() {
  const m = memory();
  if (m.last) panels.tags(m.last.tags ?? [], m.tags, pointed);
}

function showNews(m, d, what) {
  const { total, items } = d[what];
  if (items) m.news[what] = items;
  if (items || m.shown !== device) news[what](m.news[what]);
  m[what] = total;
  if (what === "refusals") m.shown = device;
  setText(byID(`${what}-note`), total ? `${total} in all${m.news[what].length < total ? `, the newest ${m.news[what].length}` : ""}` : "");
}

byID("pause").addEventListener("click", () => {
  paused = !paused;
  byID("pause").setAttribute("aria-pressed", paused);
  setText(byID("pause"), paused ? "Resume" : "Pause");
  if (!paused) poll();
});
byID("device").addEventListener("change", (event) => {
  device = Number(event.target.value);
  looked = false;
  memory().shown = memory().map = null;
  byID("details").replaceChildren();
  map.all();
  poll();
});
byID("scale").addEventListener("click", (event) => {
  chart.toBudget = !chart.toBudget;
  event.currentTarget.setAttribute("aria-pressed", chart.toBudget);
  drawChart();
});
dumpWhenAsked(() => device);
byID("zoom-in").addEventListener("click", () => map.zoom(0.5));
byID("zoom-out").addEventListener("click", () => map.zoom(2));
byID("zoom-all").addEventListener("click", () => map.all());
for (const [id, byTag] of [["by-state", false], ["by-tag", true]]) {
  byID(id).addEventListener("click", () => {
    byID("by-state").setAttribute("aria-pressed", !byTag);
    byID("by-tag").setAttribute("aria-pressed", byTag);
    map.byTag = byTag ? memory().tags : null;
    map.draw();
    panels.legend(map.dated, map.byTag);
  });
}
document.addEventListener("visibilitychange", () => (document.hidden ? schedule() : poll()));
onTheme(() => memory().last && drawChart());
setInterval(() => setText(byID("fresh"), paused ? "paused" : answered ? `${duration(Math.max(0, Date.now() - answered))} ago` : ""), 500);
poll();
