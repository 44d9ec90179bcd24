// A list to choose from by typing a part of a name; with free text where patterns make sense.

import TomSelect from "tom-select/base";
import "tom-select/dist/css/tom-select.css";

export interface Choice {
  value: string;
  text: string;
  more?: string;
}

interface Options {
  placeholder: string;
  isFree?: boolean;
  load?(): Promise<Choice[]>;
  chosen(value: string): void;
}

export class Picker {
  private readonly select: TomSelect;
  private isSilent = false;

  constructor(host: HTMLSelectElement, options: Options) {
    const label = host.getAttribute("aria-label") ?? host.labels?.[0]?.textContent ?? "";
    this.select = new TomSelect(host, {
      maxItems: 1,
      maxOptions: 500,
      valueField: "value",
      labelField: "text",
      searchField: ["text", "value"],
      sortField: [{ field: "$order" }],
      placeholder: options.placeholder,
      create: Boolean(options.isFree),
      createOnBlur: Boolean(options.isFree),
      persist: false,
      selectOnTab: true,
      openOnFocus: true,
      preload: false,
      // Who types fast and presses Enter means what he typed.
      refreshThrottle: 0,
      onType: (text: string) => this.select.wrapper.classList.toggle("fg-typing", text !== ""),
      onBlur: () => this.select.wrapper.classList.remove("fg-typing"),
      allowEmptyOption: false,
      onChange: (value: string) => {
        if (!this.isSilent) options.chosen(value);
      },
      onFocus: () => {
        if (options.load) void this.reload(options.load);
      },
      render: {
        option: (choice: Choice, escape: (text: string) => string) =>
          `<div><span class="fg-choice">${escape(choice.text)}</span>${choice.more ? `<span class="fg-choice-more">${escape(choice.more)}</span>` : ""}</div>`,
        option_create: (data: { input: string }, escape: (text: string) => string) =>
          `<div class="create">Use <strong>${escape(data.input)}</strong></div>`,
        no_results: () => '<div class="no-results">Nothing has this in its name.</div>',
      },
    });
    this.select.control_input.setAttribute("aria-label", label);
    // Tom Select notes the focus in a later turn and swallows keys until then: who clicks and types at once is heard.
    this.select.control_input.addEventListener("focus", () => {
      if (this.select.isFocused) return;
      this.select.ignoreFocus = false;
      this.select.onFocus();
    });
  }

  set(choices: Choice[], value: string): void {
    this.isSilent = true;
    const known = value && !choices.some((choice) => choice.value === value) ? [...choices, { value, text: value }] : choices;
    this.select.clearOptions(() => false);
    this.select.addOptions(known);
    this.select.setValue(value, true);
    if (!value) this.select.clear(true);
    this.isSilent = false;
  }

  focus(): void {
    this.select.focus();
  }

  destroy(): void {
    this.select.destroy();
  }

  private async reload(load: () => Promise<Choice[]>): Promise<void> {
    const value = this.select.getValue() as string;
    let choices: Choice[];
    try {
      choices = await load();
    } catch {
      return; // without suggestions a name can still be typed
    }
    this.select.clearOptions((option) => option.value === value);
    this.select.addOptions(choices.filter((choice) => choice.value !== value));
    if (this.select.isFocused) this.select.refreshOptions(true);
  }
}
