// How a decoding looks, everywhere: a colour that the colour-blind can tell apart (Okabe and Ito), and a shape.

import { node } from "./node.js";

const LOOKS = {
  diffusion: { colour: "--diffusion", shape: "square", short: "diffusion" },
  autoregressive: { colour: "--autoregressive", shape: "circle", short: "autoregressive" },
};
const OTHER = { colour: "--muted", shape: "diamond", short: "unknown" };
const SHAPES = { square: "M1 1h8v8h-8z", circle: "M5 .6a4.4 4.4 0 1 1 0 8.8a4.4 4.4 0 1 1 0-8.8z", diamond: "M5 0l5 5l-5 5l-5-5z" };

export const look = (decoding) => LOOKS[decoding] ?? OTHER;

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function mark(decoding) {
  const { shape } = look(decoding);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 10 10");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", SHAPES[shape]);
  svg.append(path);
  return node("span", { class: `mark ${look(decoding).short}` }, svg);
}
