// The newest failures, and the successes that took more than one attempt.

import { mark } from "./decoding.js";
import { count, number, time } from "./format.js";
import { keyed, node } from "./node.js";

export function failures(list, items, decodings) {
  if (items.length === 0) {
    list.replaceChildren(node("li", { class: "none" }, "none since the start"));
    return;
  }
  list.querySelector(".none")?.remove();
  keyed(list, items, (item) => item.id, (item) => make(item, decodings.get(item.backend)), () => {});
}

function make(item, decoding) {
  const failed = item.outcome !== "ok";
  const what = failed ? item.outcome.replaceAll("_", " ") : `ok at attempt ${item.attempts.length}`;
  const status = item.status >= 400 ? ` ${item.status}` : "";
  const reached = item.arrivals ? `after ${item.completion === null ? `${count(item.arrivals)} arrivals` : `${count(item.completion)} tokens`}, ` : "";
  return node(
    "li",
    {},
    node("a", { href: `/requests/${encodeURIComponent(item.id)}` }, node("time", {}, time(item.at)), " ", node("b", { class: failed ? "bad" : "" }, what + status)),
    node("span", { class: "where" }, mark(decoding), `${item.backend ?? "refused here"} `, node("small", {}, `${reached}${number(item.e2e)} s`)),
    item.message || item.type ? node("q", {}, item.message || item.type) : null,
    failed ? null : node("q", {}, item.attempts.map((attempt) => `${attempt.backend}: ${attempt.outcome.replaceAll("_", " ")}`).join(", then ")),
  );
}
