// How a decoding looks, everywhere: a colour that the colour-blind can tell apart (Okabe and Ito), and a shape.

import { node } from "./node.js";

const LOOKS = {
  diffusion: { colour: "--diffusion", shape: "square", short: "diffusion" },
  autoregressive: { colour: "--autoregressive", shape: "circle", short: "autoregressive" },
};
const OTHER = { colour: "--muted", shape: "diamond", short: "unknown" };
export const DASHES = ["none", "5 3", "2 3", "9 3"]; // of several lines of one colour
const SHAPES = { square: "M1 1h8v8h-8z", circle: "M5 .6a4.4 4.4 0 1 1 0 8.8a4.4 4.4 0 1 1 0-8.8z", diamond: "M5 0l5 5l-5 5l-5-5z" };

export const look = (decoding) => LOOKS[decoding] ?? OTHER;

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function mark(decoding) {
  return drawing("mark", decoding, "0 0 10 10", { d: SHAPES[look(decoding).shape] });
}

export function dash(decoding, nth) {
  return drawing("dash", decoding, "0 0 24 10", { d: "M0 5h24", "stroke-dasharray": DASHES[nth % DASHES.length] });
}

function drawing(kind, decoding, viewBox, facts) {
  const [svg, path] = ["svg", "path"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  svg.setAttribute("viewBox", viewBox);
  svg.setAttribute("aria-hidden", "true");
  for (const [name, value] of Object.entries(facts)) path.setAttribute(name, value);
  svg.append(path);
  return node("span", { class: `${kind} ${look(decoding).short}` }, svg);
}
