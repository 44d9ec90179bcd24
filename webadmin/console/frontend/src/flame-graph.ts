// The flame graph page: what the address says is asked, drawn, and changed by what people do.

import "./flame-graph.css";
import { forget, lastAsked, load, onTrouble } from "./asking";
import { describe, type Look, type Wishes } from "./chart";
import { showCost } from "./cost";
import { byId, fill, make } from "./dom";
import { showEmpty, showNothing } from "./empty";
import { closeFile, openFile, showExports, showFileBar } from "./exports";
import { pathOf, placeId, type Frame } from "./frames";
import { Panel } from "./panel";
import { Picker } from "./picker";
import { differenceColour } from "./palette";
import { Sandwich } from "./sandwich";
import { ask, askFile, setup, type GraphAnswer, type Report, type Service, type TimelineAnswer } from "./server";
import { everything, go, graphQuestion, isSideBySide, now, onChange, settle, typeOf, typesOf, unit, type Place } from "./session";
import { Side } from "./side";
import { SKELETON } from "./skeleton";
import { question, type Colours, type Compare, type View } from "./state";
import { counted, rangeText, shareText, shortName, typeText, valueText, zoneName } from "./words";

const SEARCH_PAUSE_MS = 250;
const host = byId("flame-graph");
host.innerHTML = SKELETON;

const reports = new Map<string, Report>();
const found = new Map<Place, GraphAnswer>();
const tip = byId("fg-tip");

const panels: Record<Place, Panel> = {
  left: new Panel(byId("fg-panel-left"), "Flame graph", wishesOf("left"), tip),
  right: new Panel(byId("fg-panel-right"), "Flame graph, right side", wishesOf("right"), tip),
};
const sandwich = new Sandwich(tip, (one) => showCurrent(one, sandwich.look));
const sides: Record<Place, Side> = { left: makeSide("left"), right: makeSide("right") };
const tenantPicker = new Picker(byId<HTMLSelectElement>("fg-tenant"), {
  placeholder: "choose a tenant",
  chosen: (tenant) => go({ tenant, service: "", type: "", from: "", until: "", filters: [], rightFilters: [], focus: "", fn: "" }),
});
const servicePicker = new Picker(byId<HTMLSelectElement>("fg-service"), {
  placeholder: "all services",
  chosen: (service) => go({ service, type: typeOf(service), focus: "", fn: "" }),
});
const typePicker = new Picker(byId<HTMLSelectElement>("fg-type"), {
  placeholder: "choose a profile type",
  chosen: (type) => go({ type, focus: "", fn: "" }),
});

// --- what the address says ---------------------------------------------------------------------------------------

onChange(() => void show());
onTrouble(
  (slot) => {
    if (slot === "file") closeFile();
    else if (slot === "left" || slot === "right") {
      panels[slot].forget();
      fill(byId("fg-cost"));
    }
  },
  () => void show(),
);

function wishesOf(place: Place): Wishes & { function(name: string): void } {
  return {
    zoom,
    zoomOut,
    sandwich: (one) => showFunction(one.isCut || !one.parent ? "" : one.name),
    function: showFunction,
    current: (one) => showCurrent(one, look(panels[place])),
  };
}

function makeSide(place: Place): Side {
  const isLeft = place === "left";
  return new Side(byId(`fg-asked-${place}`), isLeft ? "Left" : "Right", {
    range: ({ from, until }) => go(isLeft ? { from, until } : { rightFrom: from, rightUntil: until }),
    everything,
    filters: (filters) => go(isLeft ? { filters } : { rightFilters: filters }),
    suggestions: async (label, without) => {
      const query = question(now.state, place);
      const name = isLeft ? "filter" : "right_filter";
      const others = query.getAll(name).filter((filter) => filter !== without);
      query.delete(name);
      for (const filter of others) query.append(name, filter);
      if (label) query.set("name", label);
      const { values } = await ask<{ values: string[] }>("labels", query);
      // What senders write for themselves comes last.
      return label ? values : values.sort((left, right) => Number(left.startsWith("__")) - Number(right.startsWith("__")));
    },
    zone: (zone) => go({ zone }),
    again: () => {
      forget();
      for (const panel of Object.values(panels)) panel.forget();
      void show();
    },
  });
}

// --- asking ------------------------------------------------------------------------------------------------------

async function askGraph(place: Place, extra: Record<string, string>, signal: AbortSignal): Promise<GraphAnswer> {
  const query = graphQuestion(place);
  for (const [name, value] of Object.entries(extra)) if (value) query.set(name, value);
  if (!now.file) return ask<GraphAnswer>("graph", query, signal);
  query.set("show", "graph");
  return (await askFile(now.file.file, query, signal)).json();
}

// --- showing -----------------------------------------------------------------------------------------------------

async function show(): Promise<void> {
  if (!now.state.tenant && setup.tenants.length) now.state.tenant = setup.tenants[0];
  showControls();
  await load("known", now.state.tenant, (signal) => ask<{ services: Service[] }>("known", new URLSearchParams({ tenant: now.state.tenant }), signal), (answer) => {
    now.services = answer.services;
  });
  if (!lastAsked("known")) return;
  settle();
  showControls();
  if (now.file) {
    showGraph("left");
    return;
  }
  if (!now.state.type) {
    sides.left.clearTimeline("");
    showNothing();
    return;
  }
  const places: Place[] = now.state.compare ? ["left", "right"] : ["left"];
  for (const place of places) loadTimeline(place);
  showGraph("left");
  if (now.state.compare === "side") showGraph("right");
}

function showControls(): void {
  tenantPicker.set(setup.tenants.map((tenant) => ({ value: tenant, text: tenant })), now.state.tenant);
  servicePicker.set(
    now.services.map((service) => ({
      value: service.name,
      text: service.name,
      more: `until ${rangeText(service.newest_ms, service.newest_ms, now.state.zone).slice(0, 19)}`,
    })),
    now.state.service,
  );
  const types = typesOf(now.state.service);
  const chosen = now.state.type && !types.includes(now.state.type) ? [now.state.type] : [];
  typePicker.set([...types, ...chosen].map((type) => ({ value: type, text: typeText(type), more: type })), now.state.type);
  const isCompared = now.state.compare !== "" && !now.file;
  byId("fg-asked-right").hidden = !isCompared;
  byId("fg-asked-left").parentElement!.classList.toggle("fg-two", isCompared);
  byId("fg-stored").hidden = byId("fg-asked-left").hidden = Boolean(now.file);
  if (now.file) byId("fg-asked-right").hidden = true;
  sides.left.show({ from: now.state.from, until: now.state.until }, now.state.filters, now.state.zone, isCompared);
  sides.right.show({ from: now.state.rightFrom || now.state.from, until: now.state.rightUntil || now.state.until }, now.state.rightFilters, now.state.zone, isCompared);
  check("fg-compare", now.state.compare);
  check("fg-view", now.state.view);
  byId<HTMLSelectElement>("fg-colours").value = now.state.colours;
  const box = byId<HTMLInputElement>("fg-search");
  if (document.activeElement !== box) box.value = now.state.search;
  byId("fg-panels").dataset.view = now.state.view;
  byId("fg-panels").dataset.compare = now.file ? "" : now.state.compare;
}

function check(name: string, value: string): void {
  document.querySelectorAll<HTMLInputElement>(`input[name=${name}]`).forEach((one) => (one.checked = one.value === value));
}

function loadTimeline(place: Place): void {
  const query = question(now.state, place);
  const own = sides[place].moments();
  let range: [number, number] | null = null;
  if (now.state.compare) {
    // Both sides over one stretch of time, so that each can be moved along it.
    const other = sides[place === "left" ? "right" : "left"].moments();
    const prefix = place === "left" ? "" : "right_";
    query.set(`${prefix}from`, String(Math.max(1_000, Math.min(own[0], other[0]))));
    query.set(`${prefix}until`, String(Math.max(own[1], other[1])));
    range = own;
  }
  const slot = `timeline ${place}`;
  const key = `${query} ${now.state.zone} ${range}`;
  void load(slot, key, (signal) => ask<TimelineAnswer>("timeline", query, signal), (answer) => {
    if (answer.bars.some((bar) => bar[1])) sides[place].showTimeline(answer, unit(), range);
    else sides[place].clearTimeline("");
  });
}

function showGraph(place: Place): void {
  const panel = panels[place];
  const base = now.file ? `file ${now.file.file.name} ${now.file.file.size} ${now.file.file.lastModified} ${now.file.sample}` : graphQuestion(place).toString();
  if (panel.host.dataset.asked !== base) {
    panel.host.dataset.asked = base;
    panel.forget();
    found.delete(place);
    reports.delete(place);
    fill(byId("fg-current"));
    forget(place, "file", `search ${place}`, "sandwich");
  }
  panels.right.host.hidden = !isSideBySide();
  if (now.state.fn) sandwich.show();
  byId("fg-sandwich").hidden = !now.state.fn;
  byId("fg-panels").hidden = byId("fg-crumbs").hidden = Boolean(now.state.fn);
  const focus = now.state.focus;
  if (panel.has(focus)) {
    draw(place);
    loadSearch(place);
    return;
  }
  void load(now.file ? "file" : place, `${base} ${focus}`, (signal) => askGraph(place, { focus }, signal), (answer) => {
    panel.take(answer, focus);
    if (now.file) now.fileUnit = answer.sample_types?.[answer.sample ?? 0]?.unit ?? "";
    if (answer.report) reports.set(place, answer.report);
    // Side by side, what one side lacks may be on the other: then this one shows all it has.
    if (answer.focus_lost && !isSideBySide()) {
      lostFocus();
      return;
    }
    draw(place);
    loadSearch(place);
  });
}

function lostFocus(): void {
  go({ focus: "" }, true);
  const said = "What the link zooms into is not in this range; all of it is shown.";
  fill(byId("fg-message"), make("div", { className: "lt-notice lt-notice-warn" }, make("span", {}, said)));
}

function draw(place: Place): void {
  const panel = panels[place];
  const answer = panel.part ?? panel.whole;
  if (!answer) return;
  const isEmpty = answer.totals.every((total) => !total);
  const isAlone = !isSideBySide();
  showEmpty(isAlone && isEmpty);
  panel.host.hidden = false;
  panel.show(look(panel), now.state.focus, now.state.search, now.state.search ? (found.get(place) ?? null) : null);
  const lacks = now.state.focus && !panel.focused(now.state.focus) ? ", all of it: what is zoomed into is not here" : "";
  const said = isEmpty ? ", no profiles here" : lacks;
  const side = place === "left" ? "Left" : "Right";
  panel.title(isAlone ? "" : `${side}: ${sideTitle(place)}, ${valueText(answer.totals[0], unit())}${said}`);
  showCrumbs();
  showLegend();
  showFound();
  showReports();
  showExports((side) => ({
    chart: now.state.fn ? sandwich.callees : panels[side].chart,
    wholeTotals: (now.state.fn ? sandwich.look : look(panels[side])).wholeTotals,
    when: now.file ? "" : `${sideTitle(side)} ${zoneName(now.state.zone)}`,
  }));
  if (now.file) showFileBar(answer);
}

function sideTitle(place: Place): string {
  return rangeText(...sides[place].moments(), now.state.zone);
}

function look(panel: Panel): Look {
  const answer = panel.part ?? panel.whole;
  return { colours: now.state.colours, unit: unit(), wholeTotals: answer?.totals ?? [0], isSearching: now.state.search !== "" };
}

// What was cut is searched by the server; what is all here, here.
function loadSearch(place: Place): void {
  const panel = panels[place];
  const text = now.state.search;
  if (!text || panel.isComplete) {
    found.delete(place);
    return;
  }
  void load(`search ${place}`, `${panel.host.dataset.asked} ${text}`, (signal) => askGraph(place, { search: text }, signal), (answer) => {
    found.set(place, answer);
    panel.whole ??= answer;
    draw(place);
  });
}

function showFound(): void {
  const output = byId("fg-found");
  const text = now.state.search;
  const places: Place[] = isSideBySide() ? ["left", "right"] : ["left"];
  const said = places.flatMap((place) => {
    const panel = panels[place];
    if (!text || !(panel.whole ?? panel.part)) return [];
    const known = panel.isComplete ? panel.count(text) : found.get(place)?.search?.text === text ? found.get(place)!.search! : null;
    if (!known) return ["counting …"];
    const totals = (panel.whole ?? panel.part)!.totals;
    const shares = known.totals.map((total, side) => shareText(total, totals[side]));
    return [`${counted(known.functions, "function")}, ${shares.join(" left, ")}${shares.length > 1 ? " right" : " of the total"}`];
  });
  output.textContent = said.join(" · ");
}

function showReports(): void {
  const places = now.state.compare === "side" ? ["left", "right"] : ["left"];
  const main = places.flatMap((place) => reports.get(place) ?? []);
  if (now.file) fill(byId("fg-cost"), make("p", { className: "lt-empty" }, "A file from your disk: nothing was read from the store."));
  if (now.file || main.length < places.length) return;
  const sum = main.reduce((left, right) => ({
    objects_opened: left.objects_opened + right.objects_opened,
    datasets_read: left.datasets_read + right.datasets_read,
    requests: left.requests + right.requests,
    bytes_read: left.bytes_read + right.bytes_read,
    rows_read: left.rows_read + right.rows_read,
    ms: left.ms + right.ms,
    phases_ms: Object.fromEntries(Object.keys(left.phases_ms).map((name) => [name, left.phases_ms[name] + right.phases_ms[name]])),
    damage: [...left.damage, ...right.damage],
  }));
  const key = `${panels.left.host.dataset.asked} ${now.state.compare === "side" ? panels.right.host.dataset.asked : ""}`;
  showCost(byId("fg-cost"), sum, key);
}

function showCrumbs(): void {
  const panel = isSideBySide() && !panels.left.focused(now.state.focus) ? panels.right : panels.left;
  const one = panel.focused(now.state.focus);
  const answer = panel.part ?? panel.whole;
  if (!one || !answer) {
    fill(byId("fg-crumbs"));
    return;
  }
  const path = pathOf(one);
  const steps = [null, ...path].map((step, place) => {
    const isLast = place === path.length;
    const name = step ? step.name : "total";
    const share = step ? ` ${shareText(step.totals[0], answer.totals[0])}` : "";
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", title: name, "aria-current": isLast ? "location" : null, onclick: () => go({ focus: step ? placeId(step) : "" }) },
        make("span", { className: "fg-crumb-name" }, shortName(name)),
        make("span", { className: "fg-crumb-share" }, share),
      ),
    );
  });
  fill(byId("fg-crumbs"), make("ol", {}, ...steps));
}

function showLegend(): void {
  const legend = byId("fg-legend");
  legend.hidden = now.state.compare !== "diff" || Boolean(now.file);
  if (legend.hidden) return;
  const marks = [-1, -0.6, -0.25, 0, 0.25, 0.6, 1].map((gained) => make("i", { style: `background: ${differenceColour(gained, now.state.colours)}` }));
  const totals = (panels.left.part ?? panels.left.whole)?.totals ?? [0, 0];
  fill(
    legend,
    make("span", {}, `Left ${sideTitle("left")}: ${valueText(totals[0], unit())}`),
    make("span", { className: "fg-scale" }, make("span", {}, "smaller share on the right"), ...marks, make("span", {}, "larger")),
    make("span", {}, `Right ${sideTitle("right")}: ${valueText(totals[1], unit())}`),
  );
}

function showCurrent(one: Frame | null, current: Look): void {
  const box = byId("fg-current");
  if (!one) {
    fill(box);
    return;
  }
  fill(
    box,
    make("span", { className: "fg-current-text" }, describe(one, current)),
    one.parent && !one.isCut
      ? make(
          "span",
          { className: "fg-current-acts" },
          make("button", { type: "button", className: "lt-button", onclick: () => showFunction(one.name) }, "Callers and callees"),
          make("button", { type: "button", className: "lt-button", onclick: () => go({ search: one.name }) }, "Search this"),
          make("button", { type: "button", className: "lt-button", onclick: () => void navigator.clipboard?.writeText(one.name) }, "Copy name"),
        )
      : null,
  );
}

// --- zoom, sandwich ----------------------------------------------------------------------------------------------

function zoom(one: Frame): void {
  go({ focus: placeId(one.isCut ? one.parent! : one) });
}

function zoomOut(): void {
  const one = panels.left.focused(now.state.focus) ?? panels.right.focused(now.state.focus);
  if (one) go({ focus: one.parent ? placeId(one.parent) : "" });
}

function showFunction(name: string): void {
  if (name) go({ fn: name });
}

// --- what people do ----------------------------------------------------------------------------------------------

let pause: ReturnType<typeof setTimeout> | undefined;
byId<HTMLInputElement>("fg-search").addEventListener("input", (event) => {
  const text = (event.target as HTMLInputElement).value.trim();
  clearTimeout(pause);
  pause = setTimeout(() => go({ search: text }, true), SEARCH_PAUSE_MS);
});
byId("fg-search").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  clearTimeout(pause);
  byId<HTMLInputElement>("fg-search").value = "";
  go({ search: "" }, true);
});
document.querySelectorAll<HTMLInputElement>("input[name=fg-view]").forEach((one) => {
  one.onchange = () => go({ view: one.value as View, fn: "" });
});
document.querySelectorAll<HTMLInputElement>("input[name=fg-compare]").forEach((one) => {
  one.onchange = () => compare(one.value as Compare);
});
byId<HTMLSelectElement>("fg-colours").onchange = (event) => go({ colours: (event.target as HTMLSelectElement).value as Colours });
// On the way down: the admin's own script expects a text field beside every file field, and fails without.
byId("fg-file").parentElement!.addEventListener(
  "change",
  (event) => {
    event.stopPropagation();
    const opened = (event.target as HTMLInputElement).files?.[0];
    if (opened) openFile(opened);
  },
  true,
);

// The first half of the range against the second, until somebody says otherwise: both have data, mostly.
function compare(wanted: Compare): void {
  if (!wanted || now.state.rightFrom) {
    go({ compare: wanted, focus: wanted ? now.state.focus : "" });
    return;
  }
  const [start, end] = sides.left.moments();
  const middle = Math.floor((start + end) / 2);
  go({
    compare: wanted,
    from: String(start),
    until: String(middle),
    rightFrom: String(middle + 1),
    rightUntil: String(end),
    rightFilters: now.state.rightFilters.length ? now.state.rightFilters : now.state.filters,
  });
}

addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input:not([type=radio]), select, textarea, [contenteditable], .ts-wrapper")) return;
  if (event.key === "/") byId("fg-search").focus();
  else if (event.key === "g") (now.state.fn ? sandwich.callees : panels.left.chart).focus();
  else if (event.key === "?") {
    const help = byId<HTMLDetailsElement>("fg-help");
    help.open = !help.open;
    help.querySelector("summary")!.focus();
  } else if (event.key === "Escape" && document.querySelector("details.fg-menu[open]")) closeMenus();
  else if (event.key === "Escape" && now.state.fn) go({ fn: "" });
  else return;
  event.preventDefault();
});
addEventListener("click", (event) => {
  document.querySelectorAll<HTMLDetailsElement>("details.fg-menu[open]").forEach((menu) => {
    if (!menu.contains(event.target as Node)) menu.open = false;
  });
});
byId("fg-export-list").addEventListener("click", () => closeMenus());

function closeMenus(): void {
  document.querySelectorAll<HTMLDetailsElement>("details.fg-menu[open]").forEach((menu) => {
    menu.open = false;
    menu.querySelector("summary")?.focus();
  });
}

void show();
