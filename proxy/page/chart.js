// A chart: a drawing, its legend, and the same numbers as a table for whoever can't see or measure a drawing.
//
// What is drawn is a plain description ("spec"). Plotly draws it where the server has it; until it is loaded,
// and where it is not installed, svg.js does.
//
//   { kind: "bars" | "steps", label, x: { title, kind: "category" | "time" | "number", range, name }, y: { title, percent },
//     series: [{ name, note, decoding, nth, x, y, points: [{ x, y, kind }], spans: [{ from, to, y }] }] }

import { dash, mark } from "./decoding.js";
import { number, percent, time } from "./format.js";
import { node, write } from "./node.js";
import { plotly } from "./plotly.js";
import { svg } from "./svg.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
let draw = svg;
let loading = null;
const charts = new Set();

// Fetches Plotly once; charts that are there already are drawn again with it.
export function enrich() {
  loading ??= new Promise((resolve, reject) => {
    document.head.append(node("script", { src: "/page/plotly.min.js", onload: resolve, onerror: reject }));
  }).then(() => {
    draw = plotly;
    for (const chart of charts) chart.again();
  }, () => {});
}

dark.addEventListener("change", () => charts.forEach((chart) => chart.again()));

export class Chart {
  #plot;
  #legend = node("ul", { class: "legend" });
  #table = node("table");
  #details;
  #spec = null;
  #width = 0;

  constructor(place, height = 220) {
    this.#plot = node("div", { class: `plot h${height}`, role: "img" });
    this.#details = node("details", { ontoggle: () => this.#tabulate() }, node("summary", {}, "As a table"), node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The chart's numbers" }, this.#table));
    place.append(this.#plot, node("div", { class: "under" }, this.#legend, this.#details));
    charts.add(this);
    new ResizeObserver(() => {
      if (this.#plot.clientWidth !== this.#width) this.again();
    }).observe(this.#plot);
  }

  draw(spec) {
    this.#spec = spec;
    this.#plot.setAttribute("aria-label", spec.label);
    this.#legend.replaceChildren(...spec.series.map((s) =>
      node("li", {}, mark(s.decoding), s.nth ? dash(s.decoding, s.nth) : null, `${s.name} `, node("small", {}, s.note ?? ""))));
    this.#tabulate();
    this.again();
  }

  again() {
    this.#width = this.#plot.clientWidth;
    if (this.#spec === null || this.#width === 0) return;
    const empty = this.#spec.series.every((s) => s.x.length === 0);
    const name = empty ? "nothing" : draw.name;
    if (this.#plot.dataset.drawn !== name) {
      this.#plot.dataset.drawn = name;
      this.#plot.replaceChildren(node(empty ? "p" : "div"));
    }
    if (empty) write(this.#plot.firstElementChild, this.#spec.label);
    else draw(this.#plot.firstElementChild, this.#spec, this.#width, this.#plot.clientHeight);
  }

  #tabulate() {
    if (!this.#details.open || this.#spec === null) return;
    const { x, y, series } = this.#spec;
    const places = [...new Set(series.flatMap((s) => s.x))];
    if (x.kind !== "category") places.sort((a, b) => a - b);
    const name = x.kind === "time" ? (at) => time(at / 1000) : x.kind === "number" ? number : (at) => at;
    const value = y.percent ? percent : number;
    const rows = places.map((at) => node("tr", {}, node("th", { scope: "row" }, `${name(at)}`), ...series.map((s) => {
      const i = s.x.indexOf(at);
      return node("td", {}, i < 0 ? "" : value(s.y[i]));
    })));
    const heads = [x.name ?? x.title, ...series.map((s) => s.name)].map((title) => node("th", { scope: "col" }, title));
    this.#table.replaceChildren(
      node("caption", {}, y.title),
      node("thead", {}, node("tr", {}, ...heads)),
      node("tbody", {}, ...rows),
    );
  }
}
