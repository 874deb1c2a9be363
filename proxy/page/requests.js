// The table of requests. The server filters and sorts over all that is kept; here are at most 200 rows of it.

import { mark } from "./decoding.js";
import { count, money, number, time } from "./format.js";
import { find, keyed, node, write } from "./node.js";

const FIRST = 24;
const STEP = 88;
const MOST = 200;
const COLUMNS = [
  { title: "Ended", sort: "ended_at", text: (r) => time(r.started_at + r.e2e), link: true },
  { title: "Backend", text: (r) => r.backend ?? NOBODY, mark: true },
  { title: "Model", text: (r) => r.asked_model ?? r.model ?? "", wide: true },
  { title: "Outcome", text: (r) => r.outcome.replaceAll("_", " "), note: (r) => [r.status >= 400 && r.status, r.mirror && "shadow"].filter(Boolean).join(" ") },
  { title: "TTFT", unit: "s", sort: "ttft", text: (r) => number(r.ttft), pale: (r) => !r.streamed && "not streamed: the time of the whole answer" },
  { title: "Total", unit: "s", sort: "e2e", text: (r) => number(r.e2e) },
  { title: "Output", unit: "tokens", sort: "completion", text: (r) => count(r.tokens.completion) },
  { title: "Rate", unit: "tokens/s", sort: "e2e_rate", text: (r) => number(r.e2e_rate), wide: true },
  { title: "Cost", unit: "USD", sort: "cost", text: (r) => money(r.cost), money: true, wide: true },
];
const NOBODY = "refused here";

export class Requests {
  #table = find("requests");
  #form = find("filter");
  #more = find("more");
  #shown = FIRST;
  #sort = null;
  #order = "desc";
  #asking = false;
  #again = false;

  constructor() {
    this.#table.append(node("thead", {}, node("tr", {}, ...COLUMNS.map((column) => this.#head(column)))), node("tbody"));
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    this.#form.addEventListener("input", () => this.refresh());
    this.#more.addEventListener("click", () => {
      this.#shown = Math.min(MOST, this.#shown + STEP);
      this.refresh();
    });
  }

  // Whatever happens meanwhile, one question is under way at a time, and the last state is asked for.
  async refresh() {
    this.#again = true;
    if (this.#asking) return;
    this.#asking = true;
    try {
      while (this.#again) {
        this.#again = false;
        await this.#ask();
      }
    } catch {
      // The page's state says that the server is away; the next event asks again.
    } finally {
      this.#asking = false;
    }
  }

  choices(backends, outcomes) {
    fill(this.#form.elements.backend, [...backends, "none"], { none: NOBODY });
    fill(this.#form.elements.outcome, outcomes, {});
  }

  async #ask() {
    const query = new URLSearchParams(this.#filter());
    find("json").href = `/api/requests?${query}`;
    query.set("limit", this.#shown);
    const answer = await fetch(`/api/requests?${query}`);
    if (!answer.ok) throw new Error(answer.statusText);
    this.#draw(await answer.json());
  }

  #filter() {
    const asked = [...new FormData(this.#form)].filter(([, value]) => value !== "");
    return this.#sort === null ? asked : [...asked, ["sort", this.#sort], ["order", this.#order]];
  }

  #draw({ requests, matched, kept }) {
    const order = this.#sort === null ? "newest first" : `of the newest ${count(kept)}`;
    write(find("matched"), matched === 0 ? "none" : `${count(requests.length)} of ${count(matched)}, ${order}`);
    this.#more.hidden = this.#shown >= MOST || requests.length >= matched;
    const currencies = [...new Set(requests.filter((r) => r.cost !== null).map((r) => r.currency))];
    keyed(this.#table.tBodies[0], requests, (r) => r.id, make, (row, r) => price(row, r, currencies.length > 1));
    const cost = COLUMNS.findIndex((column) => column.money);
    write(this.#table.tHead.rows[0].cells[cost].querySelector("small"), currencies.length > 1 ? "" : currencies[0] ?? "");
    [...this.#table.tHead.rows[0].cells].forEach((cell, i) => {
      const sorted = COLUMNS[i].sort !== undefined && (this.#sort ?? "ended_at") === COLUMNS[i].sort;
      if (sorted) cell.setAttribute("aria-sort", this.#order === "asc" ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  }

  #head(column) {
    const facts = { scope: "col", class: column.wide ? "wide" : null };
    const words = [`${column.title} `, column.unit ? node("small", {}, column.unit) : null];
    if (column.sort === undefined) return node("th", facts, ...words);
    return node("th", facts, node("button", { type: "button", onclick: () => this.#by(column.sort) }, ...words));
  }

  #by(name) {
    const same = (this.#sort ?? "ended_at") === name;
    this.#order = same && this.#order === "desc" ? "asc" : "desc";
    this.#sort = name === "ended_at" && this.#order === "desc" ? null : name;
    this.refresh();
  }
}

function make(request) {
  const cells = COLUMNS.map((column) => {
    const text = column.text(request);
    const words = column.link ? node("a", { href: `/requests/${encodeURIComponent(request.id)}` }, text) : text;
    const why = column.pale?.(request) || null;
    const facts = { title: why, class: [column.wide && "wide", why && "pale"].filter(Boolean).join(" ") || null };
    return node("td", facts, column.mark ? mark(request.decoding) : null, words, " ", column.note || column.money ? node("small", {}, `${column.note?.(request) ?? ""}`) : null);
  });
  const failed = request.outcome !== "ok" && request.outcome !== "client_gone";
  return node("tr", { class: failed ? "failed" : null }, ...cells);
}

// One currency stands in the heading; of several, each stands beside its amount.
function price(row, request, several) {
  const cell = row.cells[COLUMNS.findIndex((column) => column.money)];
  write(cell.querySelector("small"), several && request.cost !== null ? request.currency : "");
}

function fill(select, values, names) {
  const there = new Set([...select.options].map((option) => option.value));
  for (const value of values) if (!there.has(value)) select.append(node("option", { value }, names[value] ?? value.replaceAll("_", " ")));
}
