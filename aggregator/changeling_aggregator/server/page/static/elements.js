// Elements and tables. Text is only ever set as text.

export const at = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// heads: words. rows: the first cell of each is its head.
export function table(caption, heads, rows) {
  const head = element("tr", {}, ...heads.map((each) => element("th", { scope: "col" }, each)));
  const body = rows.map(([first, ...rest]) =>
    element("tr", {}, element("th", { scope: "row" }, first), ...rest.map((each) => element("td", {}, each))),
  );
  return element("table", { "aria-label": caption }, element("thead", {}, head), element("tbody", {}, ...body));
}

// Fill a box that scrolls, which the keyboard reaches too, once somebody opens it.
export function onceOpened(box, make) {
  const details = box.closest("details");
  box.setAttribute("tabindex", "0");
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "The numbers");
  const fill = () => box.replaceChildren(make());
  details.ontoggle = () => details.open && fill();
  if (details.open) fill();
}
