// Where everything is. Each open group is laid out by itself, from the inside out, by dagre; what
// did not change is not laid out again.
import { isGroup, subtitleOf, titleOf } from "./graph.js";
import { LayeredChart } from "./layered.js";

export const HEADER = 30;
const PADDING = 22;
const GAP = { rank: 46, node: 26 };
const WIDEST = 230;
// Beyond it dagre's better ranking takes too long.
const MOST_FOR_SIMPLEX = 160;

const ruler = document.createElement("canvas").getContext("2d");
export const FONTS = {
  title: "600 13px system-ui, sans-serif",
  text: "11px system-ui, sans-serif",
};

function textWidth(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

export function boxSize(graph, item) {
  if (item.size) return item.size;
  const second = subtitleOf(graph, item);
  const title = textWidth(titleOf(item), FONTS.title) + (isGroup(item) ? 28 : 0);
  const width = Math.min(WIDEST, Math.max(84, 28 + Math.max(title, textWidth(second, FONTS.text))));
  item.size = { width, height: second ? 44 : 30 };
  return item.size;
}

// Returns the size of a group and the places of its members, relative to its corner.
export function layOut(graph, levels, group) {
  if (group.layout) return group.layout;
  const level = levels.of(group.id);
  const sizes = new Map(group.members.map((id) => [id, sizeOf(graph, levels, graph.items[id])]));
  const drawn = level.edges.filter((edge) => !edge.stub);
  const ends = linked(drawn);
  const loose = group.members.filter((id) => !ends.has(id));
  const packed = loose.length > 3 ? loose : [];
  const names = new Map();
  const chart = newChart(graph, group.members.length);
  const addNode = (key, size) => {
    names.set(key, String(names.size));
    chart.setNode(names.get(key), { ...size });
  };
  for (const id of group.members) if (!packed.includes(id)) addNode(id, sizes.get(id));
  for (const port of [...level.ins.values(), ...level.outs.values()]) addNode(port, { width: 4, height: 1 });
  drawn.forEach((edge, i) => {
    const weight = edge.from.port || edge.to.port ? 1 : 2;
    chart.setEdge(names.get(endOf(edge.from)), names.get(endOf(edge.to)), { weight, minlen: 1 }, String(i));
  });
  anchorPorts(chart, level, names);
  if (chart.layout) chart.layout();
  else dagre.layout(chart);
  group.layout = collect({ graph, group, level, drawn, chart, names, sizes, packed });
  return group.layout;
}

const endOf = (end) => end.port ?? end.item;

function sizeOf(graph, levels, item) {
  if (!isGroup(item) || !item.open) return boxSize(graph, item);
  const { width, height } = layOut(graph, levels, item);
  return { width, height };
}

function linked(edges) {
  const ends = new Set();
  for (const edge of edges) ends.add(endOf(edge.from)).add(endOf(edge.to));
  return ends;
}

function newChart(graph, members) {
  if (graph.isVast) return new LayeredChart(GAP);
  const chart = new dagre.graphlib.Graph({ multigraph: true });
  chart.setGraph({
    rankdir: "TB", ranksep: GAP.rank, nodesep: GAP.node, edgesep: 14,
    ranker: members > MOST_FOR_SIMPLEX ? "longest-path" : "network-simplex",
  });
  return chart;
}

// Two nodes that are not shown keep entering ports above all members, and leaving ports below.
function anchorPorts(chart, level, names) {
  const thin = { width: 1, height: 1 };
  if (level.ins.size) {
    chart.setNode("top", { ...thin });
    for (const port of level.ins.values()) chart.setEdge("top", names.get(port), { weight: 8 }, "anchor");
  }
  if (level.outs.size) {
    chart.setNode("bottom", { ...thin });
    for (const port of level.outs.values()) chart.setEdge(names.get(port), "bottom", { weight: 8 }, "anchor");
  }
}

function collect({ graph, group, level, drawn, chart, names, sizes, packed }) {
  const isRoot = group.id === graph.root;
  const places = new Map();
  for (const [key, name] of names) places.set(key, chart.node(name));
  const members = group.members.filter((id) => !packed.includes(id));
  const box = bounds(members.map((id) => ({ ...places.get(id), ...sizes.get(id) })), drawn, chart, names);
  const titleWidth = isRoot ? 0 : textWidth(titleOf(group), FONTS.title) + 120;
  const room = box.right - box.left + 2 * PADDING, spare = Math.max(0, titleWidth + PADDING - room) / 2;
  const left = PADDING + spare - box.left, top = (isRoot ? PADDING : HEADER + PADDING) - box.top;
  const layout = { children: [], edges: [], ports: new Map(), stubs: [] };
  for (const id of members) {
    const { width, height } = sizes.get(id), { x, y } = places.get(id);
    layout.children.push({ id, x: x - width / 2 + left, y: y - height / 2 + top, width, height });
  }
  const packedBox = pack(packed, sizes, layout.children, members.length ? box.bottom + top + GAP.rank : top + box.top);
  layout.width = Math.max(box.right + left + spare, packedBox.right) + PADDING;
  layout.height = Math.max(box.bottom + top, packedBox.bottom) + PADDING;
  const at = new Map(layout.children.map((child) => [child.id, child]));
  for (const port of level.ins.values()) layout.ports.set(port.key, { x: places.get(port).x + left, y: 0 });
  for (const port of level.outs.values()) layout.ports.set(`out${port.key}`, { x: places.get(port).x + left, y: layout.height });
  drawn.forEach((edge, i) => {
    const route = chart.edge(names.get(endOf(edge.from)), names.get(endOf(edge.to)), String(i));
    const bends = route.points.slice(1, -1).map(({ x, y }) => ({ x: x + left, y: y + top }));
    layout.edges.push({ edge, points: ends(graph, edge, at, layout, bends) });
  });
  for (const edge of level.edges) if (edge.stub) layout.stubs.push({ edge, child: at.get(edge.to.item) });
  return layout;
}

function bounds(boxes, drawn, chart, names) {
  const box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  const include = (x, y, w, h) => {
    box.left = Math.min(box.left, x - w / 2);
    box.right = Math.max(box.right, x + w / 2);
    box.top = Math.min(box.top, y - h / 2);
    box.bottom = Math.max(box.bottom, y + h / 2);
  };
  for (const { x, y, width, height } of boxes) include(x, y, width, height);
  drawn.forEach((edge, i) => {
    const route = chart.edge(names.get(endOf(edge.from)), names.get(endOf(edge.to)), String(i));
    for (const { x } of route.points) {
      box.left = Math.min(box.left, x);
      box.right = Math.max(box.right, x);
    }
  });
  return Number.isFinite(box.top) ? box : { left: 0, top: 0, right: 40, bottom: 10 };
}

// Members without edges stand in rows.
function pack(ids, sizes, children, top) {
  const across = Math.ceil(Math.sqrt(ids.length)), box = { right: 0, bottom: 0 };
  let x = PADDING, y = top, tallest = 0;
  ids.forEach((id, i) => {
    const { width, height } = sizes.get(id);
    if (i && i % across === 0) [x, y, tallest] = [PADDING, y + tallest + GAP.node, 0];
    children.push({ id, x, y, width, height });
    box.right = Math.max(box.right, x + width);
    box.bottom = Math.max(box.bottom, y + height);
    tallest = Math.max(tallest, height);
    x += width + GAP.node;
  });
  return box;
}

// The whole route of an edge: from the border of one member to the border of the other.
function ends(graph, edge, at, layout, bends) {
  const source = at.get(edge.from.item), target = at.get(edge.to.item);
  const isBack = source && target && source.y > target.y;
  const start = source
    ? attach(graph, source, bends[0] ?? middle(target), !isBack, edge, "from")
    : { ...layout.ports.get(edge.from.port.key) };
  const end = target
    ? attach(graph, target, bends.at(-1) ?? start, isBack, edge, "to")
    : { ...layout.ports.get(`out${edge.to.port.key}`) };
  return [start, ...bends, end];
}

const middle = (box) => (box ? { x: box.x + box.width / 2, y: box.y } : { x: 0, y: 0 });

function attach(graph, box, towards, atBottom, edge, side) {
  const y = atBottom ? box.y + box.height : box.y;
  const item = graph.items[box.id];
  const ports = item.open && item.layout?.ports;
  const port = ports && (side === "from" ? portOfExit(ports, edge) : ports.get(edge.id));
  if (port) return { x: box.x + port.x, y };
  const centre = box.x + box.width / 2, reach = Math.min(box.width * 0.3, 60);
  const pull = (towards.x - centre) * 0.35;
  return { x: centre + Math.max(-reach, Math.min(reach, pull)), y };
}

const portOfExit = (ports, edge) => ports.get(`out${edge.from.exit}`);

export function forget(graph, group) {
  for (let at = group; at; at = graph.items[at.parent]) at.layout = null;
}
