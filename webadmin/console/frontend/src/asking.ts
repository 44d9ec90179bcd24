// Questions under way: one per slot, the last one counts; and what is said when one fails.

import { byId, fill, make } from "./dom";
import { Refused, setup } from "./server";

const asked = new Map<string, { key: string; stop: AbortController }>();
let underWay = 0;
let again: () => void = () => {};
let failed: (slot: string) => void = () => {};

export function onTrouble(whenFailed: (slot: string) => void, askAgain: () => void): void {
  failed = whenFailed;
  again = askAgain;
}

// Asks once per key; what is not wanted any more is stopped, and its answer forgotten.
export async function load<T>(slot: string, key: string, fetched: (signal: AbortSignal) => Promise<T>, take: (answer: T) => void): Promise<void> {
  const before = asked.get(slot);
  if (before?.key === key) return;
  before?.stop.abort();
  const mine = { key, stop: new AbortController() };
  asked.set(slot, mine);
  busy(1);
  try {
    const answer = await fetched(mine.stop.signal);
    if (asked.get(slot) === mine) {
      if (byId("fg-message").dataset.about === slot) fill(byId("fg-message"));
      take(answer);
    }
  } catch (error) {
    if (asked.get(slot) !== mine || (error as Error).name === "AbortError") return;
    asked.delete(slot);
    failed(slot);
    complain(error as Error, slot);
  } finally {
    busy(-1);
  }
}

function busy(more: number): void {
  underWay += more;
  const host = byId("flame-graph");
  host.classList.toggle("fg-busy", underWay > 0);
  host.setAttribute("aria-busy", String(underWay > 0));
}

// ``about`` is the slot whose next answer takes the words away.
export function complain(error: Error, about = ""): void {
  byId("fg-message").dataset.about = about;
  const refused = error instanceof Refused ? error : new Refused("unknown", `The page failed: ${error.message}`, "Load it again.");
  const next = encodeURIComponent(location.pathname + location.search);
  fill(
    byId("fg-message"),
    make(
      "div",
      { className: "lt-notice lt-notice-bad" },
      make("span", {}, `${capital(refused.message)}${/[.!?]$/.test(refused.message) ? "" : "."} ${refused.next}`),
      refused.code === "signed_out"
        ? make("a", { className: "lt-link", href: `${setup.sign_in}?next=${next}` }, "Sign in")
        : about !== "file" && make("button", { type: "button", className: "lt-button", onclick: again }, "Ask again"),
    ),
  );
}

// A sentence begins with a capital letter, a label's name that stands first stays as it is.
function capital(text: string): string {
  if (!/^[a-z]+ /.test(text)) return text;
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

// What a slot was asked last; "" if its answer is not wanted any more, or failed.
export function lastAsked(slot: string): string {
  return asked.get(slot)?.key ?? "";
}

export function forget(...slots: string[]): void {
  for (const slot of slots.length ? slots : [...asked.keys()]) {
    asked.get(slot)?.stop.abort();
    asked.delete(slot);
  }
}
