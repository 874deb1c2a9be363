// The live page: one event a second holds the whole state, and everything here draws that state.

import { backends } from "./backends.js";
import { Chart, enrich } from "./chart.js";
import { age, count, number } from "./format.js";
import { failures } from "./failures.js";
import { find, write } from "./node.js";
import { Requests } from "./requests.js";

const STALE = 3000; // ms without an event
const POINTS = 60; // of the series
const ORDER = ["autoregressive", "diffusion"]; // the last comes first, the unknown after both

const requests = new Requests();
const ttft = new Chart(find("ttft"));
const tokens = new Chart(find("tokens"));
let source = null;
let heard = null; // when the last event came, by this machine's clock that never jumps
let paused = false;
let latest = null;

function open() {
  source?.close();
  const span = document.querySelector("[name=window]:checked").value;
  source = new EventSource(`/api/events?window=${span}`);
  source.addEventListener("summary", (event) => {
    heard = performance.now();
    latest = JSON.parse(event.data);
    if (!paused) show(latest);
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
  });
}

function show(state) {
  const decodings = new Map(state.backends.map((row) => [row.name, row.decoding]));
  const seconds = Math.round(state.seconds);
  write(find("covered"), seconds < state.window ? `last ${seconds} s: all there is of ${state.window} s` : `last ${seconds} s`);
  write(find("totals"), `${count(state.in_flight)} in flight · ${count(state.finished)} ended in ${age(state.now - state.since)}`);
  backends(find("backends"), state.backends);
  failures(find("failures"), state.failures, decodings);
  ttft.draw(distribution(state.ttft));
  tokens.draw(series(state, decodings));
  requests.choices(state.backends.map((row) => row.name).filter((name) => name !== null), state.outcomes);
  requests.refresh();
  write(find("version"), state.version);
  find("plain").hidden = state.charts;
  if (state.charts) enrich();
}

function distribution({ bounds, decodings }) {
  const names = Object.keys(decodings).sort((a, b) => ORDER.indexOf(b) - ORDER.indexOf(a));
  const held = bounds.concat(Infinity).map((_, i) => names.some((name) => decodings[name].shares[i] > 0));
  const first = Math.max(0, held.indexOf(true) - 1);
  const last = Math.max(first, Math.min(bounds.length, held.lastIndexOf(true) + 1));
  const labels = [...bounds.map((bound) => `≤${bound}`), `>${bounds.at(-1)}`].slice(first, last + 1);
  const drawn = names.map((name) => ({
    name, decoding: name, note: `n=${count(decodings[name].n)}`, x: labels, y: decodings[name].shares.slice(first, last + 1),
  }));
  const peak = ({ x, y, name }) => `${name}: most often ${x[y.indexOf(Math.max(...y))]} s`;
  return {
    kind: "bars", series: drawn, x: { title: "seconds", kind: "category" }, y: { title: "share of requests", percent: true },
    label: drawn.length ? `Time to first token. ${drawn.map(peak).join("; ")}` : "Time to first token: no streamed answer in this window",
  };
}

function series({ tokens: found, window: span, since, now }, decodings) {
  const seen = new Map(); // how many lines of each decoding there are already
  const wide = Math.max(1, Math.round(span / POINTS));
  const drawn = [...decodings.keys()].filter((name) => name in found.backends).map((name) => {
    const values = found.backends[name];
    const x = [];
    const y = [];
    for (let i = 0; i + wide <= values.length; i += wide) {
      if (found.start + i + wide <= since) continue;
      x.push((found.start + i) * 1000);
      y.push(values.slice(i, i + wide).reduce((a, b) => a + b, 0) / wide);
    }
    const decoding = decodings.get(name);
    const nth = seen.get(decoding) ?? 0;
    seen.set(decoding, nth + 1);
    return { name, decoding, nth, x, y, note: `peak ${number(Math.max(0, ...y))}` };
  });
  const range = [(Math.floor(now) - span) * 1000, Math.floor(now) * 1000];
  return {
    kind: "steps", series: drawn, x: { title: wide === 1 ? "time" : `time, each step ${wide} s`, kind: "time", range, name: "time" }, y: { title: "tokens/s" },
    label: drawn.length ? `Output tokens per second. ${drawn.map((s) => `${s.name}: ${s.note}`).join("; ")}` : "Output tokens per second: none in this window",
  };
}

function watch() {
  const silent = heard === null ? Infinity : performance.now() - heard;
  const state = paused ? "paused" : silent < STALE ? "live" : heard === null ? "connecting" : "stale";
  document.body.dataset.state = state;
  write(find("state"), state);
  write(find("age"), heard === null ? "" : `last event ${age(silent / 1000)} ago`);
  const stale = heard !== null && silent >= STALE;
  find("notice").hidden = !stale;
  if (stale) write(find("notice"), "No event for some seconds: the numbers below are old. Trying again.");
}

find("pause").addEventListener("click", () => {
  paused = !paused;
  find("pause").setAttribute("aria-pressed", `${paused}`);
  write(find("pause"), paused ? "Go on" : "Pause");
  if (!paused && latest !== null) show(latest);
  watch();
});
find("window").addEventListener("change", open);
// A browser has six connections for a host: pages that nobody sees leave theirs to the others.
document.addEventListener("visibilitychange", () => (document.hidden ? source.close() : open()));
setInterval(watch, 200);
open();
