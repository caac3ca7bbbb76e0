import { Chart } from "./chart.js";
import { details, failed, loading } from "./details.js";
import { byID, el, keyed, setText } from "./dom.js";
import { bytes, clock, duration, percent } from "./format.js";
import { AddressMap } from "./map.js";
import * as news from "./news.js";
import { Tags, onTheme } from "./palette.js";
import * as panels from "./panels.js";

const interval = 1000; // ms between answers and the next question
const patience = 10_000; // ms for an answer
const samplesKept = 900;
const gap = 4; // seconds without a sample that the chart shows as none

/** memories are what the page keeps of each device, by ordinal. */
const memories = new Map();
let device = null; // ordinal that is shown; null until the first answer
let pid = null;
let paused = false;
let answered = 0;
let pointed = null; // sample of the chart that is pointed at
let timer = 0;

const memory = () => {
  if (!memories.has(device)) memories.set(device, { samples: [], tags: new Tags(), map: null, findings: 0, refusals: 0, news: { findings: [], refusals: [] }, last: null });
  return memories.get(device);
};

const chart = new Chart(byID("chart"), (sample) => {
  pointed = sample?.tags ? sample : null;
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
});

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
  if (!paused && !document.hidden) timer = setTimeout(poll, interval);
}

function lost(why) {
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
  m.tags.settle(d.tags ?? [], (tag) => m.samples.some((s) => s.tags?.get(tag) > 0));
  drawChart();
  drawTags();
  map.skew = Date.now() - Date.parse(state.time);
  if (d.map) {
    m.map = d.map.serial;
    map.show(d.map);
    panels.legend(map.dated, map.byTag);
  }
  setText(byID("map-note"), map.summary || "no layer lists the blocks");
  if (d.streams) panels.streams(d.streams);
  showNews(m, d, "findings");
  showNews(m, d, "refusals");
  if (d.guard) panels.guard(d.guard, () => panels.guardForm(() => device, poll));
}

/** remember keeps a sample, and the rates since the last. */
function remember(m, state) {
  const { memory: now, counters, tags } = state.device;
  const t = Date.parse(state.time) / 1000;
  m.rate = {};
  if (m.last && t > m.last.t) {
    for (const [name, n] of Object.entries(counters)) m.rate[name] = Math.max(0, n - m.last.counters[name]) / (t - m.last.t);
    if (t - m.last.t > gap) m.samples.push({ t: (t + m.last.t) / 2 });
  }
  m.last = { t, counters, tags };
  m.samples.push({ t, charged: now.charged, claimed: now.claimed, limit: now.limit, tags: new Map((tags ?? []).filter((x) => x.tag).map((x) => [x.tag, x.live + x.pending])) });
  m.samples.splice(0, m.samples.length - samplesKept);
}

function header(state) {
  const several = state.devices.length > 1;
  byID("picker").hidden = !several;
  byID("name").hidden = several;
  setText(byID("name"), state.device.name);
  byID("name").title = state.device.name;
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
  list.hidden = !h.reasons?.length;
  list.dataset.state = h.state;
  keyed(list, h.reasons ?? [], (r) => r.reason, () => el("li", {}, el("b"), el("span"), el("span", { className: "quiet" })), (node, r) => {
    setText(node.children[0], r.reason.replaceAll("_", " "));
    setText(node.children[1], r.text);
    setText(node.children[2], r.since && !r.since.startsWith("0001") ? `since ${clock(r.since)}` : "");
  });
}

function drawChart() {
  const m = memory();
  const { limit, shown } = chart.show(m.samples, m.tags);
  setText(byID("scale-note"), !limit ? "" : shown ? `dashed: the budget of ${bytes(limit)}` : `the budget of ${bytes(limit)} is above the scale`);
  byID("scale").hidden = !limit;
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
  memory().shown = memory().map = null;
  byID("details").replaceChildren();
  poll();
});
byID("scale").addEventListener("click", (event) => {
  chart.toBudget = !chart.toBudget;
  event.currentTarget.setAttribute("aria-pressed", chart.toBudget);
  drawChart();
});
for (const [id, byTag] of [["by-state", false], ["by-tag", true]]) {
  byID(id).addEventListener("click", () => {
    byID("by-state").setAttribute("aria-pressed", !byTag);
    byID("by-tag").setAttribute("aria-pressed", byTag);
    map.byTag = byTag ? memory().tags : null;
    map.draw();
    panels.legend(map.dated, map.byTag);
  });
}
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
onTheme(() => memory().last && drawChart());
setInterval(() => setText(byID("fresh"), paused ? "paused" : answered ? `${duration(Math.max(0, Date.now() - answered))} ago` : ""), 500);
poll();
