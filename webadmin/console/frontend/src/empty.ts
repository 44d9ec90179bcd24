// What stands in place of a graph where there is nothing to draw: where there is something.

import { byId, fill, make } from "./dom";
import { everything, go, now, typeOf } from "./session";
import { rangeText, zoneName } from "./words";

// What an empty answer can be helped with: where there is data.
export function showEmpty(isEmpty: boolean): void {
  const box = byId("fg-empty");
  box.hidden = !isEmpty;
  byId("fg-panels").classList.toggle("fg-none", isEmpty);
  if (!isEmpty) return;
  if (now.file) {
    fill(box, make("p", { className: "lt-nothing" }, "This file has no samples of this type."));
    return;
  }
  const known = now.services.find((service) => service.name === now.state.service);
  const all = everything();
  fill(
    box,
    make(
      "div",
      { className: "lt-nothing" },
      make("p", {}, make("strong", {}, "No profiles here.")),
      known
        ? make("p", {}, `${known.name} has data ${rangeText(known.oldest_ms, known.newest_ms, now.state.zone)} ${zoneName(now.state.zone)}${known.types.includes(now.state.type) ? "" : ", but never of this type"}.`)
        : make("p", {}, now.state.service ? `${now.state.service} has no data that is kept.` : "Choose another time."),
      now.state.filters.length ? make("p", {}, "The filters may leave nothing: take one away.") : null,
      make(
        "p",
        { className: "lt-buttons fg-centre" },
        all && known ? make("button", { type: "button", className: "lt-button lt-button-strong", onclick: () => go({ ...all, focus: "" }) }, "Show all there is") : null,
        ...now.services
          .filter((service) => service.name !== now.state.service)
          .slice(0, 6)
          .map((service) =>
            make("button", { type: "button", className: "lt-button", onclick: () => go({ service: service.name, type: typeOf(service.name), from: String(Math.max(1_000, service.oldest_ms)), until: String(service.newest_ms), focus: "", fn: "" }) }, service.name),
          ),
      ),
    ),
  );
}

export function showNothing(): void {
  byId("fg-panels").classList.add("fg-none");
  const box = byId("fg-empty");
  box.hidden = false;
  const said = now.services.length ? "Choose a profile type." : `Tenant ${now.state.tenant} has no profiles yet. Send some, and they appear here within seconds.`;
  fill(box, make("p", { className: "lt-nothing" }, said));
}
