// Draws a chart's spec with Plotly. Only names from the configuration and numbers get here: Plotly reads tags in its texts.
//
// Plotly knows no time zones and takes each time for UTC, so it gets times moved by this machine's offset.

import { DASHES, colour, look } from "./decoding.js";

const CONFIG = { displayModeBar: false, displaylogo: false, doubleClick: "reset" };
const HATCH = { square: "", circle: "/", diamond: "." };
const coarse = matchMedia("(pointer: coarse)");

export function plotly(place, spec, width, height) {
  const theme = { ink: colour("--ink"), muted: colour("--muted"), line: colour("--line"), panel: colour("--panel") };
  const data = spec.series.map((series) => (spec.x.kind === "time" ? { ...series, x: series.x.map(here) } : series)).flatMap((series) => (spec.kind === "bars" ? bars(series, theme) : steps(series, theme, spec)));
  window.Plotly.react(place, data, layout(spec, theme, width, height), CONFIG);
  document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // where it measures texts, far off screen
}

const here = (at) => at - new Date(at).getTimezoneOffset() * 60_000;

function bars(series, theme) {
  const { colour: name, shape } = look(series.decoding);
  const marker = { color: colour(name), line: { width: 1, color: colour(name) }, pattern: { shape: HATCH[shape], fillmode: "replace", size: 6, solidity: 0.45 } };
  return [{ type: "bar", name: series.name, x: series.x, y: series.y, marker, hovertemplate: "%{y:.1%}<extra>%{fullData.name}</extra>" }];
}

function steps(series, theme, spec) {
  const { colour: name, shape } = look(series.decoding);
  const color = colour(name);
  const hovertemplate = spec.x.kind === "time" ? "%{y:,.0f}<extra>%{fullData.name}</extra>" : "%{x:.3f} s: %{y:,.0f}<extra>%{fullData.name}</extra>";
  const common = { type: "scatter", showlegend: false, hoverinfo: "skip" };
  const spans = (series.spans ?? []).map((span) => ({
    ...common, mode: "lines", x: [span.from, span.to], y: [span.y, span.y], line: { width: 9, color }, opacity: 0.35,
  }));
  const points = (series.points ?? []).map((point) => ({
    ...common, mode: "markers", x: [point.x], y: [point.y], cliponaxis: false,
    marker: { color: point.kind === "head" ? theme.panel : color, size: point.kind === "end" ? 14 : 9, symbol: point.kind === "end" ? "line-ns-open" : shape, line: { color, width: 2 } },
  }));
  const line = { width: 2, color, shape: "hv", dash: series.nth ? DASHES[series.nth % DASHES.length].replace(" ", "px,") + "px" : "solid" };
  return [...spans, { type: "scatter", mode: "lines", name: series.name, x: series.x, y: series.y, line, hovertemplate }, ...points];
}

function layout({ kind, x, y }, theme, width, height) {
  const axis = { gridcolor: theme.line, linecolor: theme.line, tickcolor: theme.line, zeroline: false, automargin: true };
  const title = (text) => ({ text, standoff: 6, font: { size: 12, color: theme.muted } });
  return {
    width, height, showlegend: false, bargap: 0.25, bargroupgap: 0.05, uirevision: "kept",
    hovermode: kind === "bars" ? "x unified" : x.kind === "time" ? "x unified" : "closest",
    dragmode: coarse.matches ? false : "zoom",
    margin: { l: 48, r: 12, t: 8, b: 40 },
    paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: theme.muted },
    hoverlabel: { bgcolor: theme.panel, bordercolor: theme.line, font: { color: theme.ink } },
    xaxis: { ...axis, showgrid: false, title: title(x.title), type: { category: "category", time: "date", number: "linear" }[x.kind], tickformat: x.kind === "time" ? "%H:%M:%S" : "", nticks: 6, range: x.kind === "time" ? x.range.map(here) : x.range, autorange: x.range === undefined },
    yaxis: { ...axis, title: title(y.title), rangemode: "tozero", tickformat: y.percent ? ".0%" : ",", nticks: 5 },
  };
}
