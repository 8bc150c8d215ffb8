// What is known of the selected node or group, beside the picture.
import { KINDS, amount } from "./colours.js";
import { bars, element } from "./elements.js";
import { ancestors, isGroup, titleOf } from "./graph.js";

export function fillPanel(panel, view) {
  const { graph, selected } = view;
  panel.replaceChildren();
  panel.hidden = selected === null;
  if (selected === null) return;
  const item = graph.items[selected], node = item.node;
  panel.append(
    element("button", { className: "close", title: "Close (Esc)", onclick: () => view.select(null) }, "×"),
    element("h2", {}, node ? fullOperator(node) : titleOf(item)),
    element("div", { className: "name" }, node?.name ?? `${item.total.toLocaleString("en")} nodes`),
    path(view, item),
  );
  if (isGroup(item) && item.id !== graph.root) {
    panel.append(element("p", {}, element("button", { onclick: () => view.toggle(item.id) }, item.open ? "Fold" : "Unfold")));
  }
  if (node) describeNode(panel, view, node);
  if (isGroup(item)) describeGroup(panel, view, item);
  if (item.id === graph.root) panel.append(...section("Model", list(graph.facts)));
}

const fullOperator = (node) => (node.domain ? `${node.domain}::${node.operator}` : node.operator);

function path(view, item) {
  const outer = ancestors(view.graph, item.id).reverse().slice(1);
  const links = outer.flatMap((id) => [link(titleOf(view.graph.items[id]), () => view.reveal(id)), " / "]);
  return element("div", { className: "path" }, ...links);
}

const link = (text, onclick) => element("a", { onclick, tabIndex: 0, onkeydown: (e) => e.key === "Enter" && onclick() }, text);

function section(title, ...content) {
  return [element("h3", {}, title), ...content];
}

function list(rows) {
  return element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function describeNode(panel, view, node) {
  const { graph, palette } = view, rows = [];
  if (node.kind) {
    const badge = element("span", { className: "badge" }, node.kind);
    badge.style.background = palette[node.kind];
    rows.push(["kind", element("span", {}, badge, element("div", {}, element("small", {}, KINDS[node.kind])))]);
  }
  if (node.segment !== undefined) rows.push(["segment", graph.segments[node.segment]]);
  if (node.note) rows.push(["note", node.note]);
  if (node.seconds !== undefined) rows.push(["time", amount("seconds", node.seconds)]);
  if (node.bytes !== undefined) rows.push(["memory", amount("bytes", node.bytes)]);
  if (rows.length) panel.append(...section("Run", list(rows)));
  if (node.attributes) panel.append(...section("Attributes", list(node.attributes)));
  if (node.inputs) panel.append(...section("Inputs", ...node.inputs.map((port) => value(view, port, true))));
  if (node.outputs) panel.append(...section("Outputs", ...node.outputs.map((port) => value(view, port, false))));
}

function value(view, [name, number], isInput) {
  const { graph } = view;
  if (number === null) return element("div", { className: "value" }, `${name} `, element("small", {}, "left out"));
  const flow = graph.values[number], others = isInput ? [graph.producer.get(number)] : graph.readers.get(number) ?? [];
  const links = others.filter((id) => id !== undefined).slice(0, 12).map((id) => link(labelOf(graph, id), () => view.reveal(id)));
  const shown = element("div", { className: "value" },
    name && `${name} `, element("code", {}, flow.type ?? ""), element("div", {}, element("small", {}, flow.name)));
  if (links.length) shown.append(element("div", {}, isInput ? "from " : "to ", ...links.flatMap((each, i) => (i ? [", ", each] : [each]))));
  if (flow.content) shown.append(element("div", {}, `= ${flow.content}`));
  if (flow.weight) shown.append(...weight(flow.weight));
  return shown;
}

function labelOf(graph, id) {
  const item = graph.items[id], name = item.node?.name ?? "";
  return item.node?.role ? name : `${item.node.operator} ${name === item.node.operator ? "" : name}`.trim();
}

const short = (number) => Number(number.toPrecision(4)).toString();

function weight(facts) {
  const text = [`${facts.count.toLocaleString("en")} elements, ${amount("bytes", facts.bytes)}`];
  if (facts.least !== undefined) text.push(`from ${short(facts.least)} to ${short(facts.most)}`);
  if (facts.mean !== undefined) text.push(`mean ${short(facts.mean)}, deviation ${short(facts.deviation)}`);
  if (facts.zeros) text.push(`${facts.zeros.toLocaleString("en")} zeros`);
  if (facts.unusual) text.push(`${facts.unusual.toLocaleString("en")} infinite or NaN`);
  if (facts.sampled) text.push(`of a sample of ${facts.sampled.toLocaleString("en")}`);
  const drawn = facts.bins?.length > 1 ? [bars(facts.bins, "Histogram of the weight")] : [];
  return [...drawn, element("small", {}, text.join(" · "))];
}

function describeGroup(panel, view, item) {
  const counts = new Map(), { graph } = view;
  let [seconds, bytes] = [0, 0];
  const visit = (id) => {
    const inner = graph.items[id];
    if (inner.node && (inner.node.role ?? "node") === "node") {
      counts.set(inner.node.operator, (counts.get(inner.node.operator) ?? 0) + 1);
      seconds += inner.node.seconds ?? 0;
      bytes += inner.node.bytes ?? 0;
    }
    if (isGroup(inner)) inner.members.forEach(visit);
  };
  item.members.forEach(visit);
  const rows = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12);
  if (seconds) panel.append(...section("Time", amount("seconds", seconds)));
  if (bytes) panel.append(...section("Memory", amount("bytes", bytes)));
  panel.append(...section("Operators", list(rows.map(([name, n]) => [name, n.toLocaleString("en")]))));
}
