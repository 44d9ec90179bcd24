// The flame graph as a picture of its own: plain shapes and text, as every program reads them.

import { ROW_HEIGHT, type FlameChart } from "./chart";
import { colourOf } from "./palette";
import type { Colours } from "./state";
import { shortName } from "./words";

const SVG = "http://www.w3.org/2000/svg";
const LETTER = 6.6;

export function svgPicture(chart: FlameChart, title: string, colours: Colours, wholeTotals: number[]): string {
  const frames = chart.picture();
  const height = Math.max(0, ...frames.map((each) => each.y)) + ROW_HEIGHT;
  const svg = document.createElementNS(SVG, "svg");
  const top = 28;
  svg.setAttribute("xmlns", SVG);
  svg.setAttribute("viewBox", `0 0 ${chart.pixels} ${height + top}`);
  svg.setAttribute("width", String(chart.pixels));
  svg.setAttribute("height", String(height + top));
  svg.append(shape("rect", { width: "100%", height: "100%", fill: "#fff" }), text(title, 6, 18, 13));
  for (const { one, x, y, width } of frames) {
    const fill = one.isCut ? "#d9d9d9" : colourOf(one, colours, wholeTotals);
    svg.append(shape("rect", { x, y: y + top, width, height: ROW_HEIGHT - 1, fill, rx: 1.5 }));
    const room = Math.floor((width - 8) / LETTER);
    const name = shortName(one.name);
    if (room > 2) svg.append(text(name.length > room ? `${name.slice(0, room - 1)}…` : name, x + 4, y + top + 14, 11));
  }
  return new XMLSerializer().serializeToString(svg);
}

function shape(tag: string, attributes: Record<string, string | number>): SVGElement {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  }
  return made;
}

function text(said: string, x: number, y: number, size: number): SVGElement {
  const made = shape("text", { x, y, "font-size": size, "font-family": "monospace", fill: "#111" });
  made.textContent = said;
  return made;
}

export function download(content: BlobPart, name: string, kind: string): void {
  const address = URL.createObjectURL(new Blob([content], { type: kind }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
