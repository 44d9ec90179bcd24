// One side of what is asked: its range, its filters, its timeline. There are two when something is compared.

import { Filters } from "./filters";
import type { TimelineAnswer } from "./server";
import type { Range } from "./session";
import { SIDE } from "./skeleton";
import { Timeline } from "./timeline";
import { fieldTime, fromField, rangeText, readMoment, stepText, zoneName, type Zone } from "./words";

interface Wishes {
  range(range: Range): void;
  everything(): Range | null;
  filters(filters: string[]): void;
  suggestions(label: string, without: string): Promise<string[]>;
  zone(zone: Zone): void;
  again(): void;
}

export class Side {
  private range: Range = { from: "", until: "" };
  private zone: Zone = "utc";
  private readonly filters: Filters;
  private readonly timeline: Timeline;

  constructor(
    private readonly host: HTMLElement,
    private readonly title: string,
    private readonly wishes: Wishes,
  ) {
    host.innerHTML = SIDE;
    host.querySelectorAll<HTMLElement>("select, input, button").forEach((one) => {
      one.dataset.name = one.getAttribute("aria-label") ?? one.closest("label")?.firstChild?.textContent?.trim() ?? "";
    });
    this.filters = new Filters(this.part("filters"), wishes.suggestions, wishes.filters);
    this.timeline = new Timeline(this.part("timeline"), this.part("readout"), (start, end) =>
      wishes.range({ from: String(start), until: String(end) }),
    );
    const zone = this.part<HTMLSelectElement>("zone");
    const local = zoneName("local");
    zone.add(new Option("UTC", "utc"));
    zone.add(new Option(local === "UTC" ? "this browser's time (UTC)" : local, "local"));
    zone.onchange = () => wishes.zone(zone.value as Zone);
    this.part<HTMLSelectElement>("preset").onchange = (event) => this.preset((event.target as HTMLSelectElement).value);
    for (const name of ["from", "until"]) this.part<HTMLInputElement>(name).onchange = () => this.typed();
    this.part("earlier").onclick = () => this.move(-1);
    this.part("later").onclick = () => this.move(1);
    this.part("wider").onclick = () => this.widen();
    this.part("again").onclick = () => wishes.again();
  }

  show(range: Range, filters: string[], zone: Zone, isNamed: boolean): void {
    this.range = range;
    this.zone = zone;
    const heading = this.host.querySelector<HTMLElement>(".fg-side-title")!;
    heading.hidden = !isNamed;
    heading.textContent = this.title;
    this.host.querySelectorAll<HTMLElement>("[data-name]").forEach((one) => {
      one.setAttribute("aria-label", isNamed ? `${this.title}: ${one.dataset.name}` : one.dataset.name!);
    });
    const [start, end] = this.moments();
    const preset = this.part<HTMLSelectElement>("preset");
    const known = [...preset.options].some((option) => option.value === range.from);
    preset.value = known && range.until === "now" ? range.from : this.isEverything() ? "all" : "chosen";
    this.part<HTMLInputElement>("from").value = fieldTime(start, zone);
    this.part<HTMLInputElement>("until").value = fieldTime(end, zone);
    this.part<HTMLSelectElement>("zone").value = zone;
    this.filters.show(filters);
  }

  showTimeline(answer: TimelineAnswer, unit: string, range: [number, number] | null): void {
    this.timeline.show(answer, unit, this.zone, range);
    const step = stepText(answer.step_ms);
    this.part("timeline-about").textContent = `${rangeText(answer.start_ms, answer.end_ms, this.zone)} ${zoneName(this.zone)}; a bar is the sum of ${step}. Drag to choose a range.`;
  }

  clearTimeline(said: string): void {
    this.timeline.clear();
    this.part("timeline-about").textContent = said;
    this.part("readout").textContent = "";
  }

  moments(): [number, number] {
    const now = Date.now();
    return [readMoment(this.range.from, now) ?? now - 3.6e6, readMoment(this.range.until, now) ?? now];
  }

  private part<T extends HTMLElement = HTMLElement>(name: string): T {
    return this.host.querySelector<T>(`[data-is="${name}"]`)!;
  }

  private isEverything(): boolean {
    const all = this.wishes.everything();
    return all !== null && all.from === this.range.from && all.until === this.range.until;
  }

  private preset(value: string): void {
    if (value === "all") {
      const all = this.wishes.everything();
      if (all) this.wishes.range(all);
    } else if (value === "chosen") this.tell(...this.moments());
    else this.wishes.range({ from: value, until: "now" });
  }

  private typed(): void {
    const [start, end] = ["from", "until"].map((name) => fromField(this.part<HTMLInputElement>(name).value, this.zone));
    if (start !== null && end !== null) this.tell(start, end);
  }

  private move(direction: number): void {
    const [start, end] = this.moments();
    const by = direction * Math.max(1_000, end - start);
    this.tell(start + by, end + by);
  }

  private widen(): void {
    const [start, end] = this.moments();
    const by = Math.max(1_000, end - start);
    this.tell(start - by, end + by);
  }

  private tell(start: number, end: number): void {
    this.wishes.range({ from: String(Math.max(1_000, Math.round(start))), until: String(Math.max(1_000, Math.round(end))) });
  }
}
