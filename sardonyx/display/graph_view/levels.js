// The edges of each level. An edge that leaves a group ends at a port on the border of the group,
// and goes on from there one level up, so that each level is laid out by itself.
import { ancestors } from "./graph.js";

const MOST_PORTS = 6;
const MOST_FANNED = 5;

export function buildLevels(graph) {
  const levels = new Map();
  const level = (id) => {
    if (!levels.has(id)) levels.set(id, { edges: [], keys: new Map(), ins: new Map(), outs: new Map() });
    return levels.get(id);
  };
  const leaving = countLeaving(graph);
  const outPort = (group, value) => ((leaving.get(group)?.size ?? 0) > MOST_PORTS ? "all" : value);

  const join = (owner, key, from, to, value, details) => {
    const at = level(owner);
    let edge = at.keys.get(key);
    if (!edge) {
      edge = { id: `${owner}:${at.edges.length}`, owner, from, to, values: new Set(), ...details };
      at.keys.set(key, edge);
      at.edges.push(edge);
    }
    edge.values.add(value);
    return edge;
  };
  const port = (side, owner, key, value) => {
    const ports = level(owner)[side];
    if (!ports.has(key)) ports.set(key, { port: side, key, values: new Set() });
    ports.get(key).values.add(value);
    return ports.get(key);
  };

  for (const [value, readers] of graph.readers) {
    const source = graph.producer.get(value);
    if (source === undefined) continue;
    for (const reader of readers) connect(graph, value, source, reader, { join, port, outPort });
  }
  for (const at of levels.values()) markStubs(at.edges);
  return { of: level };
}

// Follows one value from the node that computes it up to the common group, and down to a reader.
function connect(graph, value, source, reader, { join, port, outPort }) {
  if (source === reader) return;
  const up = [source, ...ancestors(graph, source)];
  const down = [reader, ...ancestors(graph, reader)];
  const common = up.find((id) => down.includes(id));
  const rise = up.slice(0, up.indexOf(common));
  const fall = down.slice(0, down.indexOf(common));
  if (rise.length === 0 || fall.length === 0) return;  // Between a node and its own subgraph.
  for (let i = 0; i + 1 < rise.length; i++) {
    const [child, owner] = [rise[i], rise[i + 1]];
    const exit = outPort(child, value), key = outPort(owner, value);
    const out = port("outs", owner, key, value);
    join(owner, `${child}/${exit}>out${key}`, { item: child, exit }, { port: out }, value);
  }
  const from = rise.at(-1), to = fall.at(-1), exit = outPort(from, value);
  let edge = join(common, `${from}/${exit}>${to}`, { item: from, exit }, { item: to }, value);
  for (let i = fall.length - 1; i > 0; i--) {
    const [owner, child] = [fall[i], fall[i - 1]];
    const entry = port("ins", owner, edge.id, value);
    edge = join(owner, `in${edge.id}>${child}`, { port: entry }, { item: child }, value);
  }
}

function countLeaving(graph) {
  const leaving = new Map();
  for (const [value, readers] of graph.readers) {
    const source = graph.producer.get(value);
    if (source === undefined) continue;
    const around = readers.map((reader) => new Set([reader, ...ancestors(graph, reader)]));
    for (const group of [source, ...ancestors(graph, source)]) {
      if (around.every((each) => each.has(group))) break;
      if (!leaving.has(group)) leaving.set(group, new Set());
      leaving.get(group).add(value);
    }
  }
  return leaving;
}

// A value that many members read is named at each of them instead of drawn to all: else its edges
// would cover the level. A reader without another edge keeps its own, which gives it a place.
function markStubs(edges) {
  const fans = new Map(), entering = new Map();
  for (const edge of edges) {
    const key = edge.from.port ?? edge.from.item;
    if (!fans.has(key)) fans.set(key, []);
    fans.get(key).push(edge);
    const target = edge.to.port ?? edge.to.item;
    entering.set(target, (entering.get(target) ?? 0) + 1);
  }
  for (const fan of fans.values()) {
    if (fan.length <= MOST_FANNED) continue;
    for (const edge of fan) {
      if (edge.to.port || entering.get(edge.to.item) < 2) continue;
      edge.stub = true;
      entering.set(edge.to.item, entering.get(edge.to.item) - 1);
    }
  }
}
