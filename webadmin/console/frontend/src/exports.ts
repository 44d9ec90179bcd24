// Files that leave the page, and the one that comes in.

import { complain } from "./asking";
import type { FlameChart } from "./chart";
import { byId, fill, make } from "./dom";
import { download, svgPicture } from "./picture";
import { askFile, exportAddress, type GraphAnswer } from "./server";
import { go, graphQuestion, isSideBySide, now, type Place } from "./session";
import { question } from "./state";
import { typeText } from "./words";

export interface Drawn {
  chart: FlameChart;
  wholeTotals: number[];
  // The range, in words.
  when: string;
}

// ``drawn`` says what a side shows when its picture is wanted.
export function showExports(drawn: (place: Place) => Drawn): void {
  const list = byId("fg-export-list");
  const links: HTMLElement[] = [];
  const places: Place[] = isSideBySide() ? ["left", "right"] : ["left"];
  const isDifference = now.state.compare === "diff" && !now.file;
  for (const place of places) {
    const said = places.length > 1 ? `, ${place}` : "";
    if (now.file) {
      links.push(exportButton("Folded stacks", () => void exportFile("folded")), exportButton("JSON (levels)", () => void exportFile("levels")));
    } else {
      const query = isDifference ? question(now.state, "both") : sideQuestion(place);
      if (!isDifference) {
        links.push(exportLink(`pprof file${said}`, exportAddress(query, "pprof")), exportLink(`Folded stacks${said}`, exportAddress(query, "folded")));
      }
      links.push(exportLink(`JSON (levels)${said}`, exportAddress(query, "levels")));
    }
    links.push(exportButton(`Picture (SVG) of what is drawn${said}`, () => exportPicture(drawn(place))));
  }
  fill(list, ...links);
}

// The right side as a question of its own, which every program understands.
function sideQuestion(place: Place): URLSearchParams {
  if (place === "left") return question(now.state, "left");
  return question({ ...now.state, from: now.state.rightFrom || now.state.from, until: now.state.rightUntil || now.state.until, filters: now.state.rightFilters }, "left");
}

function exportLink(text: string, href: string): HTMLElement {
  return make("a", { href, download: "" }, text);
}

function exportButton(text: string, onclick: () => void): HTMLElement {
  return make("button", { type: "button", onclick }, text);
}

function exportPicture(drawn: Drawn): void {
  const name = now.file ? now.file.file.name : `${now.state.service || now.state.tenant} ${typeText(now.state.type)}`;
  const picture = svgPicture(drawn.chart, `${name} ${drawn.when}`.trim(), now.state.colours, drawn.wholeTotals);
  download(picture, `${name.replace(/[^\w.-]+/g, "-")}.svg`, "image/svg+xml");
}

async function exportFile(form: string): Promise<void> {
  try {
    const query = graphQuestion("left");
    query.set("show", form);
    const response = await askFile(now.file!.file, query);
    download(await response.arrayBuffer(), `${now.file!.file.name}.${form === "folded" ? "folded" : "json"}`, "application/octet-stream");
  } catch (error) {
    complain(error as Error);
  }
}

export function showFileBar(answer: GraphAnswer): void {
  const bar = byId("fg-file-bar");
  bar.hidden = false;
  const types = make(
    "select",
    { className: "lt-input", "aria-label": "Sample type", onchange: (event: Event) => openFile(now.file!.file, Number((event.target as HTMLSelectElement).value)) },
    ...(answer.sample_types ?? []).map((one, place) => make("option", { value: String(place), selected: place === answer.sample }, `${one.type} (${one.unit})`)),
  );
  fill(
    bar,
    make("span", {}, make("strong", {}, now.file!.file.name), " is open. It stays on your disk: the server drew it and kept nothing, and a link to this page does not show it."),
    types,
    make("button", { type: "button", className: "lt-button", onclick: closeFile }, "Close the file"),
  );
}

export function openFile(opened: File, sample = -1): void {
  now.file = { file: opened, sample };
  now.fileUnit = "";
  go({ focus: "", fn: "", compare: "" });
}

export function closeFile(): void {
  now.file = null;
  byId("fg-file-bar").hidden = true;
  byId<HTMLInputElement>("fg-file").value = "";
  go({ focus: "", fn: "" });
}
