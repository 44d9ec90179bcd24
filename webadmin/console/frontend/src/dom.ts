// Elements without markup in strings: what comes from profiles is text and stays text.

type Child = Node | string | null | undefined | false;
type Properties = Record<string, unknown>;

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value as EventListener);
    else if (name in made && name !== "list" && name !== "style") (made as unknown as Properties)[name] = value;
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  for (const child of children) if (child) made.append(child);
  return made;
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

export function fill(host: Element, ...children: Child[]): void {
  host.replaceChildren(...children.filter((child): child is Node | string => Boolean(child)));
}

export const prefersStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
