import { byID, cells, el, keyed, setText } from "./dom.js";
import { bytes, clock } from "./format.js";

// The files in the folder for incidents, where the server hands them out.

const every = 15_000; // ms between looks at the folder
const forms = { incident: "incident (JSON)", jsonl: "log (JSON lines)", perfetto: "Perfetto trace", pytorch: "PyTorch snapshot" };

let looked = 0;
let shown = ""; // what was known at the last look: the device, and how many findings there were

/** files shows them, and looks again when there is reason to or some time has
 * passed. */
export async function files(device, known) {
  const section = byID("files-section");
  section.hidden = !known.files;
  const now = `${device} ${known.findings.total}`;
  if (!known.files || (now === shown && Date.now() - looked < every)) return;
  // An incident is written soon after its finding: look once more in a moment.
  looked = now === shown ? Date.now() : Date.now() - every + 2000;
  shown = now;
  await list(device);
}

async function list(device) {
  try {
    const response = await fetch(`incidents?device=${device}`);
    if (!response.ok) throw new Error(await response.text());
    draw(device, (await response.json()).files);
  } catch (error) {
    setText(byID("files-note"), error.message);
  }
}

function draw(device, list) {
  setText(byID("files-note"), list.length ? `the newest ${list.length}` : "none yet");
  byID("files").hidden = list.length === 0;
  keyed(byID("files").tBodies[0], list, (f) => `${device} ${f.index}`, (f) => {
    const row = cells(["", "", "", "n", ""]);
    row.cells[4].append(el("a", { textContent: "Download", href: `incidents/${f.index}?device=${device}`, "aria-label": `Download ${f.what} ${forms[f.form] ?? f.form} of ${clock(f.time)}` }));
    return row;
  }, (row, f) => [`${f.time.slice(0, 10)} ${clock(f.time)}`, f.form === "incident" ? f.what : `dump: ${f.what}`, forms[f.form] ?? f.form, bytes(f.bytes)].forEach((text, i) => setText(row.cells[i], text)));
}

/** dumpWhenAsked makes the button work. */
export function dumpWhenAsked(device) {
  byID("dump").addEventListener("click", async () => {
    const [button, answer] = [byID("dump"), byID("dump-answer")];
    button.disabled = true;
    setText(answer, "writing …");
    answer.className = "quiet";
    try {
      const response = await fetch(`dump?device=${device()}`, { method: "POST" });
      if (!response.ok) throw new Error(await response.text());
      setText(answer, `dumped in ${(await response.json()).files.length} forms`);
      await list(device());
    } catch (error) {
      setText(answer, error.message);
      answer.className = "bad";
    }
    button.disabled = false;
  });
}
