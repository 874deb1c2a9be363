// Draws a chart's spec as plain SVG: what there is without Plotly, and before it is there.

import { DASHES, colour, look } from "./decoding.js";
import { time } from "./format.js";

const EDGE = { left: 52, right: 12, top: 8, bottom: 40 };
const SHAPES = {
  square: (x, y) => ["rect", { x: x - 4, y: y - 4, width: 8, height: 8 }],
  circle: (x, y) => ["circle", { cx: x, cy: y, r: 4.5 }],
  diamond: (x, y) => ["path", { d: `M${x} ${y - 5}l5 5l-5 5l-5-5z` }],
};

export function svg(place, spec, width, height) {
  const frame = { x0: EDGE.left, x1: width - EDGE.right, y0: height - EDGE.bottom, y1: EDGE.top };
  const root = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  const top = nice(Math.max(0, ...spec.series.flatMap((s) => s.y)) || 1);
  const y = (value) => frame.y0 + (value / top.max) * (frame.y1 - frame.y0);
  for (let tick = 0; tick <= top.max * 1.001; tick += top.step) {
    root.append(line(frame.x0, y(tick), frame.x1, y(tick), "grid"));
    root.append(text(frame.x0 - 6, y(tick) + 4, spec.y.percent ? `${Math.round(tick * 100)}%` : compact(tick), "end"));
  }
  if (spec.kind === "bars") bars(root, spec, frame, y);
  else steps(root, spec, frame, y);
  root.append(text((frame.x0 + frame.x1) / 2, height - 4, spec.x.title, "middle"));
  place.replaceChildren(root);
}

function bars(root, spec, frame, y) {
  const places = spec.series[0]?.x ?? [];
  const slot = (frame.x1 - frame.x0) / (places.length || 1);
  const every = Math.ceil(44 / slot);
  places.forEach((name, i) => {
    if (i % every === 0) root.append(text(frame.x0 + (i + 0.5) * slot, frame.y0 + 16, name, "middle"));
    spec.series.forEach((series, j) => {
      const wide = (slot * 0.75) / spec.series.length;
      const bar = { x: frame.x0 + (i + 0.125) * slot + j * wide, y: y(series.y[i]), width: Math.max(1, wide - 1), height: frame.y0 - y(series.y[i]) };
      const paint = colour(look(series.decoding).colour);
      root.append(element("rect", { ...bar, fill: paint, "fill-opacity": j % 2 ? 0.45 : 1, stroke: paint }));
    });
  });
}

function steps(root, spec, frame, y) {
  const all = spec.series.flatMap((s) => s.x);
  const [from, to] = spec.x.range ?? [0, Math.max(0.001, ...all)];
  const x = (value) => frame.x0 + ((value - from) / (to - from)) * (frame.x1 - frame.x0);
  const unit = spec.x.kind === "time" ? 1000 : 1;
  const ticks = nice((to - from) / unit);
  for (let tick = 0; tick * unit <= (to - from) * 1.001; tick += ticks.step) {
    const at = from + tick * unit;
    root.append(text(x(at), frame.y0 + 16, spec.x.kind === "time" ? time(at / 1000) : compact(tick), x(at) > frame.x1 - 24 ? "end" : "middle"));
  }
  for (const series of spec.series) {
    const { colour: name, shape } = look(series.decoding);
    const paint = colour(name);
    for (const span of series.spans ?? []) {
      root.append(element("path", { d: `M${x(span.from)} ${y(span.y)}H${x(span.to)}`, stroke: paint, "stroke-width": 9, "stroke-opacity": 0.35 }));
    }
    const path = series.x.map((at, i) => (i === 0 ? `M${x(at)} ${y(series.y[i])}` : `H${x(at)}V${y(series.y[i])}`)).join("");
    root.append(element("path", { d: path, fill: "none", stroke: paint, "stroke-width": 2, "stroke-dasharray": DASHES[(series.nth ?? 0) % DASHES.length] }));
    for (const point of series.points ?? []) {
      const [tag, facts] = point.kind === "end" ? ["path", { d: `M${x(point.x)} ${y(point.y) - 7}v14` }] : SHAPES[shape](x(point.x), y(point.y));
      root.append(element(tag, { ...facts, stroke: paint, "stroke-width": 2, fill: point.kind === "head" ? colour("--panel") : paint }));
    }
  }
}

// A round step for about four ticks, and the round maximum above `value`.
function nice(value) {
  const rough = value / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  return { step, max: Math.ceil(value / step - 0.001) * step };
}

const compact = (value) => new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: value >= 10000 ? "compact" : "standard" }).format(value);
const line = (x1, y1, x2, y2, name) => element("line", { x1, y1, x2, y2, class: name });

function text(x, y, words, anchor) {
  const made = element("text", { x, y, "text-anchor": anchor });
  made.textContent = words;
  return made;
}

function element(tag, facts) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(facts)) made.setAttribute(name, value);
  return made;
}
