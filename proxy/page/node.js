// Makes elements. Text becomes text nodes and nothing else: whatever a stranger wrote stays what it is, text.

export function node(tag, facts = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const find = (id) => document.getElementById(id);

// Writes only what changed, so that a selection, the focus and a screen reader's place survive.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Brings the children of `parent` to `items`: what is there for a key stays there.
export function keyed(parent, items, key, make, update) {
  const there = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = there.get(name);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = name;
    }
    there.delete(name);
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of there.values()) child.remove();
}
