// The colour of a node, by what the reader chose: its kind, segment, operator or time.
import { isGroup } from "./graph.js";

export const KINDS = {
  device: "computed on the device at each call",
  host: "computed on the host at each call",
  alias: "another name for the same buffer",
  constant: "known while tracing, and read by steps",
  static: "known while tracing",
};

export function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const palette = {};
  const names = "paper frame line box border ink soft edge accent halo device static constant alias host none 1 2 3 4 5 6 7 8";
  for (const name of names.split(" ")) palette[name] = style.getPropertyValue(`--${name}`).trim();
  return palette;
}

export function modesOf(graph) {
  const has = (field) => graph.nodes.some((node) => node[field] !== undefined);
  const modes = { kind: has("kind"), segment: graph.segments.length > 0, operator: true, time: has("seconds"), memory: has("bytes") };
  return Object.keys(modes).filter((mode) => modes[mode]);
}

export class Colours {
  constructor(graph) {
    this.graph = graph;
    this.mode = modesOf(graph)[0];
    const counts = new Map();
    for (const { operator, role } of graph.nodes) {
      if (!role || role === "node") counts.set(operator, (counts.get(operator) ?? 0) + 1);
    }
    this.operators = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([name]) => name);
    const most = (field) => graph.nodes.reduce((high, node) => Math.max(high, node[field] ?? 0), 0);
    this.most = { seconds: most("seconds"), bytes: most("bytes") };
    this.shares = new Map();
  }

  // The name of a colour of the palette, or a colour itself.
  of(node, palette) {
    if (this.mode === "time") return this.heat(node.seconds, this.most.seconds, palette);
    if (this.mode === "memory") return this.heat(node.bytes, this.most.bytes, palette);
    return palette[this.keyOf(node)];
  }

  keyOf(node) {
    if (this.mode === "kind") return node.kind ?? "none";
    if (this.mode === "segment") return node.segment === undefined ? "none" : String(1 + (node.segment % 8));
    const place = this.operators.indexOf(node.operator);
    return place < 0 ? "none" : String(place + 1);
  }

  heat(value, most, palette) {
    if (!value) return palette.none;
    const share = Math.sqrt(value / most);
    return `hsl(${Math.round(215 - 215 * share)} ${Math.round(45 + 40 * share)}% 52%)`;
  }

  // The colours of the nodes in a group, each with its share, for the stripe of a folded box.
  sharesOf(item, palette) {
    const key = `${this.mode}${palette.paper}${item.id}`;
    if (!this.shares.has(key)) this.shares.set(key, this.count(item, palette));
    return this.shares.get(key);
  }

  count(item, palette) {
    const counts = new Map();
    let total = 0;
    const visit = (id) => {
      const inner = this.graph.items[id];
      if (inner.node && (inner.node.role ?? "node") === "node") {
        const colour = this.of(inner.node, palette);
        counts.set(colour, (counts.get(colour) ?? 0) + 1);
        total += 1;
      }
      if (isGroup(inner)) inner.members.forEach(visit);
    };
    visit(item.id);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([colour, n]) => [colour, n / total]);
  }

  legend(palette) {
    if (this.mode === "kind") {
      const used = new Set(this.graph.nodes.map((node) => node.kind));
      return Object.keys(KINDS).filter((kind) => used.has(kind)).map((kind) => [palette[kind], kind]);
    }
    if (this.mode === "segment") {
      return this.graph.segments.slice(0, 8).map((name, i) => [palette[String(1 + i)], name]).concat([[palette.none, "no step"]]);
    }
    if (this.mode === "operator") return this.operators.map((name, i) => [palette[String(i + 1)], name]);
    const field = this.mode === "time" ? "seconds" : "bytes";
    return [[this.heat(1, 400, palette), "least"], [this.heat(1, 4, palette), "a quarter"], [this.heat(1, 1, palette), amount(field, this.most[field])]];
  }
}

export function amount(field, value) {
  if (field === "bytes") {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"], step = Math.min(4, Math.floor(Math.log2(value || 1) / 10));
    return `${(value / 1024 ** step).toFixed(step ? 1 : 0)} ${units[step]}`;
  }
  if (value >= 1) return `${value.toPrecision(3)} s`;
  return value >= 1e-3 ? `${(value * 1e3).toPrecision(3)} ms` : `${(value * 1e6).toPrecision(3)} µs`;
}
