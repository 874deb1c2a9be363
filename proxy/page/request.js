// One request: its arrivals as a curve of cumulative tokens, beside those of another.

import { Chart, enrich } from "./chart.js";
import { mark } from "./decoding.js";
import { NONE, count, money, number, percent, time } from "./format.js";
import { find, node, write } from "./node.js";

const id = decodeURIComponent(location.pathname.split("/").at(-1));
const chart = new Chart(find("steps"), 320);

// [name, unit, value, what it says when there is none]
const FACTS = [
  ["Time to first token", "s", (r) => number(r.ttft)],
  ["First answer", "s", (r) => number(r.ttfa)],
  ["Head of the answer", "s", (r) => number(r.ttfb)],
  ["Silence after the head", "s", (r) => number(r.silence)],
  ["90 % there for good", "s", (r) => number(r.t90)],
  ["Total", "s", (r) => number(r.e2e)],
  ["Output", "tokens", (r) => tokens(r)],
  ["Rate over all", "tokens/s", (r) => number(r.e2e_rate)],
  ["Rate after the first arrival", "tokens/s", (r) => (r.decode_rate === null ? reason(r.decode_rate_reason) : number(r.decode_rate))],
  ["Arrivals", "", (r) => count(r.arrival_count)],
  ["Largest burst", "tokens", (r) => number(r.largest_burst)],
  ["Stalls", "", (r) => (r.stall_count ? `${count(r.stall_count)} (${number(r.stall_time)} s)` : "0")],
  ["Shown and later replaced", "% of the answer", (r) => percent(r.churn)],
  ["Cost", "", (r) => (r.cost === null ? "no price" : `${money(r.cost)} ${r.currency}`)],
  ["Taken by the proxy", "ms", (r) => (r.overhead === null ? NONE : number(r.overhead * 1000))],
];

const ABOUT = [
  ["Id", (r) => r.id],
  ["Began", (r) => `${new Date(r.started_at * 1000).toLocaleDateString()} ${time(r.started_at)}`],
  ["Outcome", (r) => outcome(r)],
  ["Error", (r) => (r.fault ? [r.fault.type, r.fault.code, r.fault.message].filter(Boolean).join(": ") : null)],
  ["Backend", (r) => r.backend ?? "none: refused here"],
  ["Model asked for", (r) => r.asked_model],
  ["Model sent", (r) => r.sent_model],
  ["Model in the answer", (r) => r.answered_model],
  ["Path", (r) => `${r.method} ${r.path}`],
  ["Streamed", (r) => (r.streamed ? "yes" : "no: one arrival, at the end")],
  ["Ended with", (r) => r.finish_reasons.join(", ")],
  ["Tokens in", (r) => (r.tokens.prompt === null ? null : `${count(r.tokens.prompt)}${r.tokens.cached ? `, of these cached ${count(r.tokens.cached)}` : ""}`)],
  ["Of the output, reasoning", (r) => (r.tokens.reasoning ? `${count(r.tokens.reasoning)} tokens` : null)],
  ["Attempts", (r) => (r.attempts.length > 1 ? r.attempts : []).map((a) => `${a.backend}: ${words(a.outcome)} after ${number(a.seconds)} s`).join(", then ")],
  ["Route", (r) => r.route],
  ["Client", (r) => r.client],
  ["Shadow copy", (r) => (r.mirror ? "yes: the client did not see it" : null)],
  ["Parameters translated", (r) => r.translated.join(", ")],
  ["Parameters dropped", (r) => r.dropped.join(", ")],
  ["Warning", (r) => r.warning],
  ["Uncertain", (r) => (r.perturbed ? `the event loop was late by ${number(r.loop_lag * 1000)} ms` : null)],
  ["Notes", (r) => r.notes.join("; ")],
];

const words = (label) => label.replaceAll("_", " ");
const outcome = (r) => `${words(r.outcome)}${r.status === null ? "" : `, ${r.status}`}`;
const reason = (why) => `${NONE} (${words(why ?? "unknown")})`;

function tokens(r) {
  if (r.tokens.completion !== null) return count(r.tokens.completion);
  return r.estimated_completion === null ? NONE : `${NONE} (about ${count(r.estimated_completion)} by characters)`;
}

async function get(path) {
  const answer = await fetch(path);
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error.message), { code: body.error.code });
  return body;
}

async function main() {
  let mine;
  try {
    mine = await get(`/api/requests/${encodeURIComponent(id)}`);
  } catch (error) {
    write(find("state"), error.code === "in_flight" ? "in flight" : "not here");
    find("notice").hidden = false;
    write(find("notice"), `${id}: ${error.message}`);
    if (error.code === "in_flight") setTimeout(main, 1000);
    return;
  }
  find("notice").hidden = true;
  find("json").href = `/api/requests/${encodeURIComponent(id)}`;
  write(find("state"), outcome(mine));
  document.body.dataset.state = mine.outcome === "ok" ? "live" : "stale";
  document.title = `${mine.backend ?? "refused"} · ${id} · Manometer`;
  find("title").replaceChildren(mark(mine.decoding), mine.backend ?? "refused here", " ", node("small", {}, mine.asked_model ?? ""), " ", node("small", {}, id));
  document.querySelector("main").hidden = false;
  about(mine);
  const [{ requests }, { charts }] = await Promise.all([get("/api/requests?limit=200"), get("/api/summary")]);
  const others = requests.filter((r) => r.id !== id && r.arrival_count > 0);
  const asked = new URLSearchParams(location.search).get("with");
  const rival = others.find((r) => r.outcome === "ok" && r.streamed && r.decoding !== mine.decoding && r.api === mine.api);
  choose(others, asked ?? rival?.id ?? "");
  find("with").addEventListener("change", () => beside(mine));
  await beside(mine);
  if (charts) enrich();
}

function choose(others, chosen) {
  const groups = Map.groupBy(others, (r) => r.backend ?? "refused here");
  for (const [name, members] of groups) {
    const options = members.map((r) => node("option", { value: r.id }, `${name}: ${time(r.started_at)}, ${tokens(r)} tokens, ${number(r.e2e)} s`));
    find("with").append(node("optgroup", { label: name }, ...options));
  }
  if (chosen && !others.some((r) => r.id === chosen)) find("with").append(node("option", { value: chosen }, chosen));
  find("with").value = chosen;
}

async function beside(mine) {
  const chosen = find("with").value;
  history.replaceState(null, "", chosen ? `?with=${encodeURIComponent(chosen)}` : location.pathname);
  const other = chosen ? await get(`/api/requests/${encodeURIComponent(chosen)}`).catch(() => null) : null;
  const both = other === null ? [mine] : [mine, other];
  draw(both);
  facts(both);
}

function draw(both) {
  const unknown = both.some((r) => r.arrivals.length && r.arrivals[0].burst === null);
  const measure = unknown ? "characters" : "tokens";
  const series = both.map((r, i) => curve(r, i === 1, unknown));
  write(find("measure"), unknown ? "Cumulative characters (tokens are not known)" : "Cumulative output tokens");
  const says = series.map((s) => `${s.name}: ${count(s.y.at(-1) ?? 0)} ${measure} in ${s.arrivals} arrivals, the first after ${number(s.first)} s`);
  chart.draw({ kind: "steps", series, x: { title: "seconds since the request came in", kind: "number", name: "seconds" }, y: { title: measure }, label: says.join("; ") });
}

// From the head on: what had come in all, after each arrival; then flat to the end.
function curve(r, second, characters) {
  const x = [r.ttfb ?? 0];
  const y = [0];
  const spans = [];
  let total = 0;
  const stall = [...r.gaps].sort((a, b) => b - a)[r.stall_count - 1] ?? Infinity; // the shortest gap that is one
  r.arrivals.forEach((arrival, i) => {
    if (i > 0 && r.gaps[i - 1] >= stall) spans.push({ from: r.arrivals[i - 1].at, to: arrival.at, y: total });
    total += characters ? arrival.answer + arrival.reasoning + arrival.tool : arrival.burst;
    x.push(arrival.at);
    y.push(total);
  });
  x.push(r.e2e);
  y.push(total);
  const points = [{ x: r.e2e, y: total, kind: "end" }];
  if (r.ttfb !== null) points.push({ x: r.ttfb, y: 0, kind: "head" });
  if (r.ttft !== null) points.push({ x: r.ttft, y: y[1], kind: "first" });
  const name = r.backend ?? "refused here";
  return { name, note: second ? "beside" : "this request", decoding: r.decoding, nth: second ? 1 : 0, x, y, spans, points, arrivals: r.arrivals.length, first: r.ttft };
}

function facts(both) {
  const heads = both.map((r, i) => node("th", { scope: "col" }, mark(r.decoding), i ? node("a", { href: `/requests/${encodeURIComponent(r.id)}?with=${encodeURIComponent(id)}` }, r.backend ?? "refused here") : r.backend ?? "refused here"));
  const rows = FACTS.map(([name, unit, value]) =>
    node("tr", {}, node("th", { scope: "row" }, `${name} `, unit ? node("small", {}, unit) : null), ...both.map((r) => node("td", {}, value(r)))));
  find("facts").replaceChildren(node("thead", {}, node("tr", {}, node("td"), ...heads)), node("tbody", {}, ...rows));
}

function about(mine) {
  const rows = ABOUT.map(([name, value]) => [name, value(mine)]).filter(([, value]) => value);
  find("about").replaceChildren(node("tbody", {}, ...rows.map(([name, value]) => node("tr", {}, node("th", { scope: "row" }, name), node("td", {}, value)))));
}

main();
