// What the device did in the last seconds, a row for each queue: a stream of the driver's, which
// serves one lease after another.

import { byID, el, keyed, setText } from "./dom.js";
import { count, counted, duration } from "./format.js";

const most = 16; // queues that are drawn, the busiest

let chosen = null; // the work whose waits are written out

const named = (w) => (w.id ? `${w.name || "launch"} #${w.id}` : "memory used again");
const exact = (ms) => (ms < 1 ? `${Math.round(ms * 1000)} µs` : ms < 1000 ? `${ms.toFixed(ms < 10 ? 2 : 1)} ms` : duration(ms));
const said = (w) => [`${named(w)} on ${w.lease ? `stream ${w.lease}` : "the default stream"}, queue q${w.stream}: ${w.id ? `ran ${exact(w.began - w.ended)}` : ""}`, ...(w.waits ?? []), w.trace ? `trace ${w.trace}` : ""].filter(Boolean);

/** timeline asks for the newest of a device and draws it. Without one the section is not there. */
export async function timeline(device) {
  const section = byID("timeline-section");
  try {
    const response = await fetch(`timeline?device=${device}`);
    if (response.status === 404) section.hidden = true;
    if (!response.ok) return;
    draw(await response.json());
    section.hidden = false;
  } catch {
    // the state says what is wrong with the server
  }
}

function draw(t) {
  const reach = Math.max(t.reach_ms, 0.001);
  const queues = new Map();
  for (const w of t.works) {
    if (!queues.has(w.stream)) queues.set(w.stream, []);
    queues.get(w.stream).push(w);
  }
  const busy = (works) => works.reduce((ms, w) => ms + w.reached - w.ended, 0);
  const shown = [...queues].sort((a, b) => busy(b[1]) - busy(a[1])).slice(0, most).sort((a, b) => a[0] - b[0]);
  const parts = [`the launches that were timed in the last ${exact(reach)}`];
  if (shown.length < queues.size) parts.push(`${counted(queues.size - shown.length, "queue")} not shown`);
  if (t.omitted) parts.push(`${t.omitted === 1 ? "1 launch" : `${count(t.omitted)} launches`} not shown`);
  setText(byID("timeline-note"), t.works.length ? parts.join(", ") : "no launch was timed in the last seconds");
  keyed(byID("timeline"), shown, ([queue]) => queue, ([queue]) => el("div", { className: "lane" }, el("span", { className: "n", textContent: `q${queue}` }), el("div", { className: "bars" })), (lane, [, works]) => {
    lane.lastChild.replaceChildren(...works.flatMap((w) => bars(w, reach)));
  });
  keyed(byID("held-up"), t.held_up, (r) => r.trace, () => el("li", {}, el("b"), el("span"), el("span", { className: "quiet mono" })), (node, r) => {
    setText(node.children[0], `lost ${exact(r.lost_ms)}`);
    setText(node.children[1], r.text);
    setText(node.children[2], r.trace);
  });
  setText(byID("timeline-work"), chosen ? said(chosen).join("\n") : "");
}

/** bars are the time that a launch stood and waited, and the time that it ran. */
function bars(w, reach) {
  const bar = (className, from, to) => {
    const node = el("i", { className, title: said(w).join("\n"), style: { left: `${100 * (1 - from / reach)}%`, width: `${(100 * (from - to)) / reach}%` } });
    node.addEventListener("click", () => {
      chosen = w;
      setText(byID("timeline-work"), said(w).join("\n"));
    });
    return node;
  };
  const from = Math.min(w.reached, reach);
  return [...(w.waits ? [bar("held", from, Math.min(w.began, reach))] : []), ...(w.id ? [bar("ran", Math.min(w.began, reach), w.ended)] : [])];
}
