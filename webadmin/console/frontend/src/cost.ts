// What an answer took, so that compaction can be seen at work; and what it is without.

import { fill, make } from "./dom";
import type { Report } from "./server";
import { counted, countText, msText, sizeText } from "./words";

const PHASES: Record<string, string> = {
  index: "asking the index which blocks there are",
  open: "opening objects",
  series: "finding the series",
  rows: "reading profiles",
  symbols: "reading names",
  merge: "merging stacks",
};
const KEPT = "lithify-flame-costs";
const KEPT_MAX = 50;

export function showCost(host: HTMLElement, report: Report, question: string): void {
  const before = remember(question, report.objects_opened);
  const whole = Object.values(report.phases_ms).reduce((sum, ms) => sum + ms, 0);
  fill(
    host,
    make(
      "dl",
      { className: "fg-cost" },
      fact("Objects opened", countText(report.objects_opened), "Files in the object store that were opened for this answer. Compaction makes them few."),
      fact("Bytes read", sizeText(report.bytes_read), "Read from the store. What was still in memory is not counted."),
      fact("Requests", countText(report.requests), "Ranges asked of the store."),
      fact("Profiles", countText(report.rows_read), "Rows that answered."),
      fact("Time", msText(report.ms), "From the question to the answer, on the server."),
    ),
    make(
      "div",
      { className: "fg-phases", role: "img", "aria-label": Object.entries(report.phases_ms).map(([name, ms]) => `${name} ${msText(ms)}`).join(", ") },
      ...Object.entries(report.phases_ms).map(([name, ms]) =>
        make(
          "span",
          { className: `fg-phase fg-phase-${name}`, title: `${name}: ${msText(ms)} ${PHASES[name] ?? ""}, added up over threads`, style: `flex-grow: ${whole ? Math.max(ms / whole, 0.004) : 1}` },
          whole && ms / whole > 0.12 ? `${name} ${msText(ms)}` : "",
        ),
      ),
    ),
    before !== null && before !== report.objects_opened
      ? make("p", { className: "fg-cost-before" }, `The same question opened ${counted(before, "object")} when you asked first.`)
      : null,
    report.damage.length
      ? make(
          "div",
          { className: "lt-notice lt-notice-warn", role: "alert" },
          make("span", {}, `This answer is partial: ${counted(report.damage.length, "dataset")} could not be read and ${report.damage.length === 1 ? "is" : "are"} left out.`),
          make(
            "details",
            {},
            make("summary", {}, "Which, and why"),
            make("ul", { className: "fg-damage" }, ...report.damage.slice(0, 20).map((one) => make("li", {}, `${one.service || "dataset index"} in ${one.object}: ${one.reason}`))),
          ),
        )
      : null,
  );
}

function fact(title: string, text: string, about: string): HTMLElement {
  return make("div", { title: about }, make("dt", {}, title), make("dd", {}, text));
}

// How many objects the same question opened when it was first asked in this tab; null if it is asked first.
function remember(question: string, objects: number): number | null {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") as Record<string, number>;
    const before = kept[question] ?? null;
    if (before === null) {
      kept[question] = objects;
      sessionStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(Object.entries(kept).slice(-KEPT_MAX))));
    }
    return before;
  } catch {
    return null; // a browser that keeps nothing
  }
}
