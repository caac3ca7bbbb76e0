import { byID, cells, el, keyed, setText } from "./dom.js";
import { bytes, clock, count, counted, duration, percent, short } from "./format.js";
import { ages, color, mix, ofState, states } from "./palette.js";

const swatch = (name) => el("i", { className: "swatch", style: { background: color(name) }, "aria-hidden": "true" });

/** poolText is what of the pool is in no block, and what it may hold. */
function poolText(m) {
  const parts = [`${bytes(m.pool_cached)} cached`];
  if (m.own_pool) parts.push(`${bytes(m.own_pool.fragmented)} fragmented`);
  if (m.own_pool?.limit) parts.push(`at most ${bytes(m.own_pool.limit)}`);
  return parts.join(", ");
}

/** tiles are the numbers that are looked at first. rate is per second since the
 * state before. */
export function tiles(device, rate) {
  const m = device.memory;
  const c = device.counters;
  const per = (n) => (n == null ? "" : `${short(n)}/s`);
  const waits = (rate.waits_queued ?? 0) + (rate.waits_elided ?? 0);
  const list = [
    { what: "Charged", value: bytes(m.charged), more: m.limit ? `${percent(m.charged, m.limit)} of ${bytes(m.limit)}${m.charged > m.limit ? ": freed memory serves its stream again before the device has passed it" : ""}` : "no budget" },
    { what: "Live", color: "live", value: bytes(m.live.bytes), more: `${counted(m.live.blocks, "block")}` },
    { what: "Pending free", color: "pending", value: bytes(m.pending.bytes), more: `${counted(m.pending.blocks, "block")}${m.pending.blocks ? "; serves its stream again meanwhile" : ""}` },
    { what: "Quarantined", color: "quarantined", value: bytes(m.quarantined.bytes), more: `${counted(m.quarantined.blocks, "block")}` },
    { what: "Claimed", color: "claimed", value: bytes(m.claimed), more: `${counted(m.claims, "claim")}` },
    ...(device.jobs ? [{ what: "Jobs waiting", value: count(device.jobs.waiting), more: `for memory; ${count(device.jobs.learning)} being learned` }] : []),
    { what: "Pool reserved", value: bytes(m.pool_reserved), more: poolText(m) },
    { what: "Allocations", value: per(rate.allocations) || "–", more: `${short(c.allocations)} in all` },
    { what: "Launches", value: per(rate.launches) || "–", more: `${c.open_intents} open, ${short(c.launches)} in all` },
    { what: "Waits elided", value: percent(waits ? rate.waits_elided : c.waits_elided, waits || c.waits_elided + c.waits_queued), more: `${per(rate.waits_queued) || short(c.waits_queued)} queued` },
    { what: "Refused", value: short(c.refusals), more: c.failures ? `${counted(c.failures, "driver failure")}` : per(rate.refusals), alarm: rate.refusals > 0 },
    { what: "Findings", value: short(device.findings.total), more: c.poisoned ? `${counted(c.poisoned, "block")} poisoned` : "", alarm: device.findings.total > 0 },
  ];
  keyed(byID("tiles"), list, (t) => t.what, (t) => {
    const what = el("div", { className: "what" });
    if (t.color) what.append(swatch(t.color));
    what.append(t.what);
    return el("div", { className: "tile" }, what, el("div", { className: "value" }), el("div", { className: "more" }));
  }, (node, t) => {
    node.classList.toggle("alarm", Boolean(t.alarm));
    setText(node.children[1], t.value);
    setText(node.children[2], t.more);
    node.children[2].title = t.more;
  });
}

export function budget(m) {
  const bar = byID("budget");
  bar.hidden = !m.limit;
  const parts = [["live", m.live.bytes], ["quarantined", m.quarantined.bytes], ["pending", m.pending.bytes], ["claimed", m.claimed]];
  bar.setAttribute("aria-label", `Of the budget of ${bytes(m.limit)}: ${parts.map(([s, n]) => `${bytes(n)} ${s}`).join(", ")}`);
  keyed(bar, parts, ([s]) => s, ([s]) => el("i", { title: s }), (node, [s, n]) => {
    node.style.width = `${(100 * n) / Math.max(m.limit, m.charged)}%`;
    node.style.background = color(s);
  });
}

/** layers says what the chart draws above the tags, as far as there is any, and
 * where its past does not know. */
export function layers(samples) {
  const drawn = [["quarantined", "quarantined"], ["pending", "pending free"], ["claimed", "claimed"]].filter(([name]) => samples.some((s) => s[name] > 0));
  keyed(byID("layers"), drawn, ([name]) => name, ([name, text]) => el("span", {}, swatch(name), text), () => {});
  const past = samples.findLast((s) => s.past);
  const first = samples.find((s) => s.past);
  setText(byID("past-note"), !past ? "" : `before ${clock(past.t * 1000)} from the log in memory${first.pending === null ? ", which does not say what was pending" : ""}`);
}

/** tags lists them as they are, or what they had live where the chart is pointed
 * at. */
export function tags(list, palette, then) {
  const known = (t) => t.tag && then.live.has(t.tag);
  const rows = then ? list.map((t) => ({ ...t, then: known(t) ? then.live.get(t.tag) : null })).sort((a, b) => b.then - a.then) : list;
  const some = (n) => (then ? "" : n ? bytes(n) : "–");
  setText(byID("tags-when"), then ? `at ${clock(then.t * 1000)}` : "now");
  keyed(byID("tags").tBodies[0], rows, (t) => t.tag ?? "", (t) => {
    const row = cells(["name", "n", "n", "n", "n"]);
    row.cells[0].append(el("span", { className: "named" }, el("i", { className: "swatch" }), el("span", { textContent: t.tag ?? `${t.others} others`, title: t.tag ?? "" })));
    return row;
  }, (row, t) => {
    row.querySelector(".swatch").style.background = color(t.tag ? palette.name(t.tag) : "other");
    setText(row.cells[1], then ? (t.then === null ? "" : bytes(t.then)) : some(t.live));
    setText(row.cells[2], some(t.quarantined));
    setText(row.cells[3], some(t.pending));
    setText(row.cells[4], then ? "" : count(t.live_blocks + t.pending_blocks + t.quarantined_blocks));
  });
}

export function legend(dated, byTag) {
  const at = byID("map-legend");
  at.replaceChildren();
  if (byTag) {
    at.append("fainter: freed and not yet passed, or quarantined");
    return;
  }
  states.forEach((s, i) => at.append(el("span", {}, el("span", { className: "ramp" }, ...ages.map((a) => el("i", { title: a.upTo === Infinity ? "10 min and more" : `up to ${a.text}`, style: { background: ofState(i, dated ? a.upTo : -1) } }))), s)));
  at.append(el("span", { textContent: dated ? "held 1 s … 10 min and more" : "ages unknown: the guard is off" }));
}

/** shades are how much of another stream's work comes first, by how many events of
 * it do not. */
const shades = [[0, 1, "all"], [15, 0.7, "but for 15 events"], [255, 0.45, "but for 255"], [Infinity, 0.25, "less"]];
const shade = (behind) => mix("live", "free", shades.find(([most]) => behind <= most)[1]);

/** streams shows who has each, and how far behind the device is known to be. */
export function streams(s) {
  const known = new Map(s.list.map((x) => [x.number, x]));
  setText(byID("streams-note"), `${s.leased} of ${s.limit} leased, ${s.idle} idle${s.adopted ? `, ${s.adopted} adopted` : ""}${s.waiting ? `, ${s.waiting} waiting for a lease` : ""}${s.omitted ? `, ${s.omitted} not shown` : ""}`);
  byID("streams-note").className = s.waiting ? "warn" : "quiet";
  keyed(byID("order-legend"), s.list.length > 32 ? [] : [["ordered after"], ...shades], ([most]) => most, ([most, , text]) => el("span", {}, ...(text ? [el("i", { className: "swatch" })] : []), text ?? most), (node, [most]) => {
    if (node.firstElementChild) node.firstElementChild.style.background = shade(most);
  });
  const order = s.list.slice().sort((a, b) => a.number - b.number);
  keyed(byID("streams").tBodies[0], s.list, (x) => x.number, (x) => {
    const row = cells(["n", "", "name", "n", "name", "n", "", "n", "n", "n", "n", "", "where"]);
    row.cells[6].append(el("span", { className: "bar" }, el("i")), el("span"));
    row.cells[11].append(el("span", { className: "after" }));
    return row;
  }, (row, x) => {
    const held = x.lease || x.name;
    row.className = held ? "" : "idle";
    const behind = x.busy ? null : x.seq - x.completed;
    const texts = [x.name || (x.lease ? String(x.lease) : "–"), `q${x.number}`, x.lease ? x.tag : x.name ? "" : "idle", x.lease ? duration(x.age_ms) : "", x.last ?? "", x.busy ? "busy" : count(x.seq)];
    texts.forEach((text, i) => setText(row.cells[i], text));
    row.cells[2].title = x.tag ?? "";
    row.cells[6].firstChild.firstChild.style.width = behind === null ? "0" : `${100 * (1 - Math.min(behind, 64) / 64)}%`;
    setText(row.cells[6].lastChild, behind === null ? "" : behind === 0 ? (x.pending_frees ? "all but the frees" : "all") : `−${count(behind)}`);
    setText(row.cells[7], x.open_launches ? String(x.open_launches) : "–");
    setText(row.cells[8], x.pending_frees ? `${count(x.pending_frees)} (${bytes(x.pending_bytes)})` : "–");
    setText(row.cells[9], count(x.waits_queued));
    setText(row.cells[10], count(x.waits_elided));
    ordered(row.cells[11].firstChild, x, order, known);
    setText(row.cells[12], [x.capturing ? "capturing" : "", x.adopted ? "adopted" : "", x.at ?? ""].filter(Boolean).join(" · "));
    row.cells[12].title = x.at ?? "";
  });
}

/** called is what findings call a stream: by the number of its lease. */
const called = (x) => x.name || (x.lease ? `stream ${x.lease}` : `queue q${x.number}, idle`);

/** ordered draws a square for each stream: the stronger, the closer to that
 * stream's newest event everything that is enqueued here comes. */
function ordered(at, x, order, known) {
  if (order.length > 32) {
    setText(at, `${(x.after ?? []).length} streams`);
    return;
  }
  const after = new Map((x.after ?? []).map((p) => [p.number, p.seq]));
  keyed(at, order, (o) => o.number, () => el("i"), (square, o) => {
    const seq = after.get(o.number);
    const behind = seq == null ? null : (known.get(o.number).seq || seq) - seq;
    square.className = o.number === x.number ? "self" : "";
    square.style.background = behind === null || o.number === x.number ? "" : shade(behind);
    square.title = o.number === x.number ? "" : `${called(o)}: ${seq == null ? "nothing" : `up to ${count(seq)}${behind > 0 ? `, ${count(behind)} behind its newest` : ", all of it"}`}`;
  });
}

export function guard(g, form) {
  byID("guard-section").hidden = false;
  setText(byID("guard-note"), `${g.setting}, policy ${g.policy}${g.hunt_tags.length ? `, hunting ${g.hunt_tags.join(", ")}` : ""}`);
  keyed(byID("guard"), Object.entries(g.numbers).sort(([a], [b]) => (a < b ? -1 : 1)), ([name]) => name, ([name]) => el("div", {}, el("dt", { textContent: name.replaceAll("_", " ") }), el("dd")),
    (node, [name, n]) => {
      setText(node.lastChild, name.endsWith("bytes") ? bytes(n) : count(n));
      node.className = n === 0 ? "zero" : "";
    });
  const place = byID("guard-switch");
  if (g.switch && !place.firstChild) place.append(form());
  if (!g.switch) place.replaceChildren();
}

/** guardForm switches the guard, where the server lets it. */
export function guardForm(device, then) {
  const mode = el("input", { name: "mode", placeholder: "off, ledger, sample, hunt", size: 24, required: true, "aria-label": "Mode" });
  const answer = el("output", { className: "quiet" });
  const form = el("form", {}, el("span", { textContent: "Switch to" }), mode, el("button", { type: "submit", textContent: "Switch" }), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const response = await fetch(`guard?device=${device()}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ mode: mode.value }) });
    answer.textContent = response.ok ? "switched" : await response.text();
    answer.className = response.ok ? "quiet" : "bad";
    then();
  });
  return form;
}
