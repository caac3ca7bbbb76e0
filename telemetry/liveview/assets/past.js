// What happened before the page looked, from the log that the process keeps in
// memory. What that has lost stays blank.

/** samplesOf makes samples of the server's answer. What the past does not say
 * (claims, and pending frees unless the log has releases) is null. */
function samplesOf(past, limit) {
  return past.t.map((t, i) => {
    const live = new Map(past.tags.map((tag, k) => [tag, past.live[k][i]]));
    const sum = past.live.reduce((n, row) => n + row[i], past.others[i]);
    return { t, live, sum, quarantined: past.quarantined[i], pending: past.pending?.[i] ?? null, claimed: null, limit, past: true };
  });
}

/** fill puts the past of a device where a page has no samples of its own: between
 * from and until, both in seconds. Between what is there and what is not lies a
 * sample without anything, which the chart shows as a gap. */
export function fill(samples, past, from, until, limit, gap) {
  const before = samples.filter((s) => s.t <= from);
  const after = samples.filter((s) => s.t >= until);
  const between = samplesOf(past, limit).filter((s) => s.t > from && s.t < until);
  const joined = [];
  for (const part of [before, between, after]) {
    const [last, first] = [joined.at(-1), part[0]];
    if (last && first && first.t - last.t > gap) joined.push({ t: (last.t + first.t) / 2 });
    joined.push(...part);
  }
  return joined;
}
