// Search by name, operator or shape; all words must be found.
import { element } from "./elements.js";
import { isGroup, titleOf } from "./graph.js";

const MOST_FOUND = 60;

export function find(graph, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  graph.haystacks ??= graph.items.map((item) => haystack(graph, item));
  const found = [];
  for (const item of graph.items) {
    if (item.id === graph.root || graph.itemOf[item.id] !== undefined && graph.itemOf[item.id] !== item.id) continue;
    if (!words.every((word) => graph.haystacks[item.id].includes(word))) continue;
    const title = titleOf(item).toLowerCase();
    found.push([title === words[0] ? 0 : title.startsWith(words[0]) ? 1 : 2, item]);
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, MOST_FOUND).map(([, item]) => item);
}

function haystack(graph, item) {
  const { node } = item, parts = isGroup(item) ? [item.group.name] : [];
  if (node) {
    parts.push(node.operator, node.domain ?? "", node.name ?? "");
    for (const [, value] of [...(node.inputs ?? []), ...(node.outputs ?? [])]) {
      if (value !== null) parts.push(graph.values[value].name ?? "", graph.values[value].type ?? "");
    }
  }
  // Shapes are found with or without blanks after the commas.
  const text = parts.join(" ").toLowerCase();
  return `${text} ${text.replaceAll(", ", ",")}`;
}

export function searchBox(view) {
  const results = element("ul", { className: "results", hidden: true, role: "listbox" });
  const input = element("input", { type: "search", placeholder: "Search name, operator, shape", id: "search", autocomplete: "off" });
  let found = [], chosen = 0;
  const show = () => {
    results.hidden = input.value.trim() === "";
    results.replaceChildren(...found.map((item, i) => row(item, i)));
    if (!found.length) results.append(element("li", {}, "Nothing found"));
  };
  const row = (item, i) => element("li", { role: "option", "aria-selected": String(i === chosen), onmousedown: (e) => { e.preventDefault(); take(i); } },
    titleOf(item), element("small", {}, item.node?.name ?? `${item.total} nodes`));
  const take = (i) => {
    if (!found[i]) return;
    results.hidden = true;
    view.reveal(found[i].id);
    view.canvas.focus();
  };
  input.addEventListener("input", () => { [found, chosen] = [find(view.graph, input.value), 0]; show(); });
  input.addEventListener("blur", () => { results.hidden = true; });
  input.addEventListener("focus", () => { if (found.length) show(); });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      chosen = (chosen + step + found.length) % found.length;
      show();
      results.children[chosen].scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Enter") take(chosen);
    else if (event.key === "Escape") view.canvas.focus();
    event.stopPropagation();
  });
  return element("div", { className: "search" }, input, results);
}
