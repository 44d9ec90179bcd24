// Conditions on labels, each a row: a name, an operator, a value; names and values are suggested.

import { fill, make } from "./dom";
import { Picker } from "./picker";
import { OPERATORS, readFilter, writeFilter, type Filter } from "./state";

export class Filters {
  private shown = "";
  private rows: Filter[] = [];
  private pickers: Picker[] = [];

  constructor(
    private readonly host: HTMLElement,
    private readonly suggestions: (label: string, without: string) => Promise<string[]>,
    private readonly changed: (filters: string[]) => void,
  ) {}

  show(filters: string[]): void {
    const serialized = JSON.stringify(filters);
    if (serialized === this.shown) return;
    this.shown = serialized;
    this.rows = filters.map(readFilter);
    this.draw();
  }

  private draw(focused = -1): void {
    for (const picker of this.pickers) picker.destroy();
    this.pickers = [];
    fill(
      this.host,
      ...this.rows.map((row, place) => this.row(row, place)),
      make("button", { type: "button", className: "lt-button fg-add", onclick: () => this.add() }, "Add a filter"),
    );
    this.host.querySelectorAll<HTMLElement>(".fg-filter").forEach((element, place) => this.equip(element, place));
    if (focused >= 0) this.pickers[2 * focused]?.focus();
  }

  private add(): void {
    this.rows.push({ label: "", operator: "=", value: "" });
    this.draw(this.rows.length - 1);
  }

  private row(row: Filter, place: number): HTMLElement {
    const operator = make(
      "select",
      {
        className: "lt-input fg-operator",
        "aria-label": `Filter ${place + 1}: operator`,
        onchange: (event: Event) => this.set(place, { operator: (event.target as HTMLSelectElement).value }),
      },
      ...Object.entries(OPERATORS).map(([value, words]) => make("option", { value, selected: value === row.operator }, `${value}  ${words}`)),
    );
    return make(
      "div",
      { className: "fg-filter", role: "group", "aria-label": `Filter ${place + 1}` },
      make("select", { className: "fg-filter-label", "aria-label": `Filter ${place + 1}: label` }),
      operator,
      make("select", { className: "fg-filter-value", "aria-label": `Filter ${place + 1}: value` }),
      make("button", { type: "button", className: "lt-button fg-remove", "aria-label": `Remove filter ${place + 1}`, title: "Remove", onclick: () => this.remove(place) }, "×"),
    );
  }

  private equip(element: HTMLElement, place: number): void {
    const row = this.rows[place];
    const suggested = async (label: string) => (await this.suggestions(label, writeFilter(row))).map((value) => ({ value, text: value }));
    const label = new Picker(element.querySelector(".fg-filter-label")!, {
      placeholder: "label",
      isFree: true,
      load: () => suggested(""),
      chosen: (name) => this.set(place, { label: name }),
    });
    const value = new Picker(element.querySelector(".fg-filter-value")!, {
      placeholder: "value",
      isFree: true,
      load: async () => (this.rows[place].label ? suggested(this.rows[place].label) : []),
      chosen: (text) => this.set(place, { value: text }),
    });
    label.set([], row.label);
    value.set([], row.value);
    this.pickers.push(label, value);
  }

  private set(place: number, part: Partial<Filter>): void {
    this.rows[place] = { ...this.rows[place], ...part };
    this.tell();
  }

  private remove(place: number): void {
    this.rows.splice(place, 1);
    this.draw();
    this.host.querySelector<HTMLElement>(".fg-add")?.focus();
    this.tell();
  }

  private tell(): void {
    // A row that is begun asks nothing yet; a link may ask for an empty value.
    const before = JSON.parse(this.shown || "[]") as string[];
    const filters = this.rows
      .filter((row) => row.label && (row.value || before.includes(writeFilter(row))))
      .map(writeFilter);
    const serialized = JSON.stringify(filters);
    if (serialized === this.shown) return;
    this.shown = serialized;
    this.changed(filters);
  }
}
