// One row per backend. The columns are a table of what each shows, so that heading, unit and value can't drift apart.

import { look, mark } from "./decoding.js";
import { NONE, age, count, money, number, percent } from "./format.js";
import { keyed, node, write } from "./node.js";

const FEW = 20; // below, a p95 is hardly more than the largest
const n = (spread) => `n=${count(spread.n)}`;
const costs = (row, what) => row.costs.map((cost) => [money(cost[what]), cost.currency]);
const onlyUnit = (rows) => new Set(rows.flatMap((row) => row.costs.map((cost) => cost.currency)));
const price = (what) => (row, single) =>
  row.costs.length ? costs(row, what).map(([value, unit]) => (single ? value : `${value} ${unit}`)).join(" + ") : NONE;

const COLUMNS = [
  { title: "In flight", value: (row) => count(row.in_flight), note: (row) => (row.oldest_in_flight >= 10 ? `oldest ${age(row.oldest_in_flight)}` : "") },
  { title: "Requests", unit: "per s", value: (row) => number(row.rate) },
  { title: "Errors", unit: "%", value: (row) => percent(row.error_share), note: (row) => (row.errors ? `${count(row.errors)} of ${count(row.n)}` : ""), bad: (row) => row.errors > 0 },
  { title: "TTFT p50", unit: "s", value: (row) => number(row.ttft.p50), note: (row) => n(row.ttft) },
  { title: "TTFT p95", unit: "s", value: (row) => number(row.ttft.p95), note: (row) => n(row.ttft), pale: (row) => row.ttft.n < FEW },
  { title: "Silence", unit: "% of time", value: (row) => percent(row.silence_share) },
  { title: "Output, all", unit: "tokens/s", value: (row) => number(row.throughput), note: (row) => (row.usage_unknown ? `${count(row.usage_unknown)} unknown` : "") },
  { title: "Per request", unit: "tokens/s, p50", value: (row) => number(row.e2e_rate.p50), note: (row) => n(row.e2e_rate) },
  { title: "Burst", unit: "tokens", value: (row) => number(row.tokens_per_burst) },
  { title: "Cost", unit: "per hour", money: true, value: price("per_hour"), note: (row) => (row.unpriced ? `${count(row.unpriced)} unpriced` : "") },
  { title: "Cost", unit: "per million", money: true, value: price("per_million") },
];

export function backends(table, rows) {
  if (table.tHead === null) prepare(table);
  const currencies = onlyUnit(rows);
  const single = currencies.size < 2;
  const units = COLUMNS.map((column) => (column.money && single ? [...currencies, column.unit].join(" ") : column.unit ?? ""));
  units.forEach((unit, i) => write(table.tHead.rows[0].cells[i + 1].lastElementChild, unit));
  keyed(table.tBodies[0], rows, (row) => `${row.name ?? ""}`, make, (element, row) => update(element, row, single, units));
}

function prepare(table) {
  const heads = COLUMNS.map((column) => node("th", { scope: "col" }, column.title, " ", node("small")));
  table.append(
    node("thead", {}, node("tr", {}, node("th", { scope: "col" }, "Backend"), ...heads)),
    node("tbody"),
  );
}

function make(row) {
  const name = row.name ?? "refused here";
  const first = node("th", { scope: "row" }, mark(row.decoding), node("b", {}, name), " ", node("small", {}, row.name === null ? "no backend" : look(row.decoding).short));
  const cells = COLUMNS.map((column) => node("td", { "data-label": column.title }, node("span"), " ", node("small")));
  return node("tr", {}, first, ...cells);
}

function update(element, row, single, units) {
  COLUMNS.forEach((column, i) => {
    const cell = element.cells[i + 1];
    write(cell.firstElementChild, column.value(row, single));
    write(cell.lastElementChild, column.note?.(row) ?? "");
    cell.dataset.unit = units[i];
    cell.classList.toggle("bad", column.bad?.(row) ?? false);
    cell.classList.toggle("pale", column.pale?.(row) ?? false);
  });
}
