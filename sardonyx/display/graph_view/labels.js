// Text at edges: dtypes and shapes, and the names of values that are not drawn.
import { FONTS } from "./layout.js";

export function clipped(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (c.measureText(`${text.slice(0, half)}…`).width <= width) low = half;
    else high = half - 1;
  }
  return `${text.slice(0, low)}…`;
}

// Labels that would cover others are left out; `taken` has the rectangles by rows of the sheet.
function isFree(taken, x, y, width) {
  const row = Math.round(y / 14);
  for (const near of [row - 1, row, row + 1]) {
    for (const [left, right] of taken.get(near) ?? []) if (x < right && x + width > left) return false;
  }
  if (!taken.has(row)) taken.set(row, []);
  taken.get(row).push([x - 4, x + width + 4]);
  return true;
}

function label(view, text, x, y, taken, colour) {
  const { context: c, palette } = view;
  const width = c.measureText(text).width;
  if (!isFree(taken, x, y, width)) return;
  c.lineWidth = 3;
  c.lineJoin = "round";
  c.strokeStyle = palette.halo;
  c.globalAlpha = 0.65;
  c.strokeText(text, x, y);
  c.globalAlpha = 1;
  c.fillStyle = colour;
  c.fillText(text, x, y);
}

export function textOf(graph, edge) {
  const values = [...edge.values].map((value) => graph.values[value]);
  const types = new Set(values.map((value) => value.type ?? ""));
  if (types.size === 1) {
    const [type] = types;
    return type && values.length > 1 ? `${values.length} × ${type}` : type;
  }
  return `${values.length} values`;
}

export function paintLabels(view, edges, taken) {
  const { context: c, graph, scene, palette, selected } = view;
  c.font = FONTS.text;
  c.textBaseline = "middle";
  // What leaves an open group has its label inside, at the member that computes it.
  const isToldInside = ({ item }) => scene.place.get(item)?.isFrame && graph.items[item].node === null;
  const told = new Set();
  for (const { edge, points } of edges) {
    const key = `${edge.from.item}/${[...edge.values].join()}`;
    if (edge.from.port || isToldInside(edge.from) || told.has(key)) continue;
    told.add(key);
    const isNear = edge.from.item === selected || edge.to.item === selected;
    const text = textOf(graph, edge), start = points[0], down = points[1].y >= start.y;
    if (text) label(view, text, start.x + 6, start.y + (down ? 12 : -12), taken, isNear ? palette.accent : palette.soft);
  }
}

export function paintStubs(view, inView, taken) {
  const { context: c, graph, scene, palette } = view;
  c.font = FONTS.text;
  c.textBaseline = "middle";
  for (const { edge, x, y } of scene.stubs) {
    if (!inView({ x, y: y - 20, width: 120, height: 20 })) continue;
    const [value] = edge.values;
    c.strokeStyle = palette.edge;
    c.lineWidth = 1.2;
    c.setLineDash([2, 2]);
    c.beginPath();
    c.moveTo(x, y - 14);
    c.lineTo(x, y);
    c.stroke();
    c.setLineDash([]);
    const name = edge.values.size > 1 ? `${edge.values.size} values` : graph.values[value].name;
    label(view, clipped(c, name, 110), x + 4, y - 10, taken, palette.soft);
  }
}
