// Paints the scene on a canvas: only what is in view, and text only where it can be read.
import { isGroup, subtitleOf, titleOf } from "./graph.js";
import { clipped, paintLabels, paintStubs } from "./labels.js";
import { FONTS, HEADER } from "./layout.js";

const TEXT_FROM = 0.42;
const LABELS_FROM = 0.6;
const DETAILS_FROM = 0.16;
// Pixels of the shortest edge that is painted from afar.
const SHORTEST = 3;

export function paint(view) {
  const { canvas, context: c, camera, scene, palette } = view;
  const ratio = devicePixelRatio || 1;
  const [width, height] = [Math.round(camera.width * ratio), Math.round(camera.height * ratio)];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const scale = camera.scale * ratio;
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.fillStyle = palette.paper;
  c.fillRect(0, 0, width, height);
  c.setTransform(scale, 0, 0, scale, -camera.x * scale, -camera.y * scale);
  const seen = {
    left: camera.x, top: camera.y, right: camera.x + camera.width / camera.scale, bottom: camera.y + camera.height / camera.scale,
  };
  const inView = (b) => b.x < seen.right && b.x + b.width > seen.left && b.y < seen.bottom && b.y + b.height > seen.top;
  const frames = scene.frames.filter(inView), boxes = scene.boxes.filter(inView);
  const least = camera.scale < DETAILS_FROM ? SHORTEST / camera.scale : 0;
  const edges = scene.edges.filter((e) => e.left < seen.right + 9 && e.right > seen.left - 9
    && e.top < seen.bottom && e.bottom > seen.top && e.bottom - e.top + e.right - e.left >= least);
  frames.forEach((box) => paintFrame(view, box));
  paintEdges(view, edges);
  boxes.forEach((box) => paintBox(view, box));
  frames.forEach((box) => paintFrameTitle(view, box));
  if (camera.scale >= LABELS_FROM) {
    const taken = new Map();
    paintStubs(view, inView, taken);
    paintLabels(view, edges, taken);
  }
  view.painted = { boxes: boxes.length, frames: frames.length, edges: edges.length };
}

function rounded(c, box, radius) {
  c.beginPath();
  c.roundRect(box.x, box.y, box.width, box.height, radius);
}

function paintFrame({ context: c, palette, selected, camera }, box) {
  rounded(c, box, 10);
  c.fillStyle = palette.frame;
  c.fill();
  const isSelected = selected === box.item.id;
  c.strokeStyle = isSelected ? palette.accent : palette.border;
  c.lineWidth = (isSelected ? 2 : 1) / Math.min(1, camera.scale);
  c.stroke();
}

// The title stays readable when the frame is small, as names on a map do.
function paintFrameTitle({ context: c, palette, camera, colours }, box) {
  const size = Math.min(2.6, Math.max(1, 0.7 / camera.scale));
  if (box.width * camera.scale < 44 || box.height * camera.scale < 26) return;
  c.save();
  c.translate(box.x + 10, box.y + HEADER / 2 + 1);
  c.scale(size, size);
  c.font = FONTS.title;
  c.textBaseline = "middle";
  const room = (box.width - 20) / size;
  const title = clipped(c, titleOf(box.item), room - 18);
  c.lineWidth = 3;
  c.lineJoin = "round";
  c.strokeStyle = palette.halo;
  c.globalAlpha = 0.6;
  c.strokeText(title, 16, 0);
  c.globalAlpha = 1;
  marker(c, palette, true);
  const isNode = box.item.node !== null;
  c.fillStyle = isNode ? colours.of(box.item.node, palette) : palette.ink;
  c.fillText(title, 16, 0);
  if (size === 1) {
    const after = 16 + c.measureText(title).width + 8;
    c.font = FONTS.text;
    c.fillStyle = palette.soft;
    const note = isNode ? box.item.node.operator : subtitleOf({}, box.item);
    if (after + c.measureText(note).width < room) {
      c.strokeStyle = palette.halo;
      c.lineWidth = 3;
      c.globalAlpha = 0.6;
      c.strokeText(note, after, 0.5);
      c.globalAlpha = 1;
      c.fillText(note, after, 0.5);
    }
  }
  c.restore();
}

// The sign that a group folds or unfolds.
function marker(c, palette, isOpen) {
  c.strokeStyle = palette.soft;
  c.lineWidth = 1.6;
  c.beginPath();
  if (isOpen) c.moveTo(0, -2), c.lineTo(4, 2), c.lineTo(8, -2);
  else c.moveTo(2, -4), c.lineTo(6, 0), c.lineTo(2, 4);
  c.stroke();
}

function paintEdges({ context: c, palette, selected, camera }, edges) {
  const thin = 1.1 / Math.min(1, Math.max(0.25, camera.scale));
  const near = [];
  c.strokeStyle = palette.edge;
  c.globalAlpha = camera.scale < DETAILS_FROM ? 0.5 : 0.9;
  for (const each of edges) {
    const { edge } = each;
    if (selected !== null && (edge.from.item === selected || edge.to.item === selected)) {
      near.push(each);
      continue;
    }
    c.lineWidth = thin * Math.min(2.2, 1 + 0.25 * (edge.values.size - 1));
    if (camera.scale < DETAILS_FROM) straight(c, each.points);
    else c.stroke(each.path);
  }
  c.globalAlpha = 1;
  c.strokeStyle = palette.accent;
  c.lineWidth = thin * 2;
  near.forEach(({ path }) => c.stroke(path));
  if (camera.scale < TEXT_FROM) return;
  for (const each of edges) arrow(c, each, near.includes(each) ? palette.accent : palette.edge);
}

// From afar nobody sees the curves, which take several times as long to paint.
function straight(c, points) {
  c.beginPath();
  points.forEach(({ x, y }, i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
  c.stroke();
}

function arrow(c, { edge, points }, colour) {
  const tip = points.at(-1), before = points.at(-2);
  if (edge.to.port) return;
  const back = tip.y >= before.y ? -6 : 6;
  c.fillStyle = colour;
  c.beginPath();
  c.moveTo(tip.x, tip.y);
  c.lineTo(tip.x - 3.6, tip.y + back);
  c.lineTo(tip.x + 3.6, tip.y + back);
  c.fill();
}

function paintBox(view, box) {
  const { context: c, palette, colours, camera, selected, graph } = view;
  const { item } = box, group = isGroup(item);
  const isEnd = item.node?.role === "input" || item.node?.role === "output";
  const radius = isEnd ? box.height / 2 : 7;
  const colour = item.node ? colours.of(item.node, palette) : palette.soft;
  if (camera.scale < DETAILS_FROM) {
    c.fillStyle = group ? colours.sharesOf(item, palette)[0]?.[0] ?? colour : colour;
    c.fillRect(box.x, box.y, box.width, box.height);
    return;
  }
  if (group) {
    rounded(c, { ...box, x: box.x + 3, y: box.y + 3 }, radius);
    c.fillStyle = palette.line;
    c.fill();
  }
  rounded(c, box, radius);
  c.fillStyle = palette.box;
  c.fill();
  c.save();
  c.clip();
  if (group) stripe(c, box, colours.sharesOf(item, palette));
  else if (!isEnd) {
    c.fillStyle = colour;
    c.globalAlpha = 0.13;
    c.fillRect(box.x, box.y, box.width, box.height);
    c.globalAlpha = 1;
    c.fillRect(box.x, box.y, 5, box.height);
  }
  c.restore();
  rounded(c, box, radius);
  c.strokeStyle = selected === item.id ? palette.accent : palette.border;
  c.lineWidth = selected === item.id ? 2.5 : 1;
  c.stroke();
  if (camera.scale >= TEXT_FROM) boxText(c, { graph, palette, box, group, isEnd });
  else bigText(c, { palette, box, camera });
}

function stripe(c, box, shares) {
  let x = box.x;
  for (const [colour, share] of shares) {
    c.fillStyle = colour;
    c.fillRect(x, box.y + box.height - 4, box.width * share + 1, 4);
    x += box.width * share;
  }
}

function boxText(c, { graph, palette, box, group, isEnd }) {
  const second = subtitleOf(graph, box.item), centre = box.x + box.width / 2 + (group || isEnd ? 0 : 2);
  const room = box.width - (group ? 34 : 20);
  c.textAlign = "center";
  c.textBaseline = "middle";
  c.font = FONTS.title;
  c.fillStyle = palette.ink;
  const y = second ? box.y + (group ? 15 : 16) : box.y + box.height / 2 + 0.5;
  c.fillText(clipped(c, titleOf(box.item), room), centre + (group ? 5 : 0), y);
  if (second) {
    c.font = FONTS.text;
    c.fillStyle = palette.soft;
    c.fillText(clipped(c, second, box.width - 18), centre, y + 16);
  }
  c.textAlign = "start";
  if (!group) return;
  c.save();
  c.translate(box.x + 8, box.y + 15);
  marker(c, palette, false);
  c.restore();
}

// From afar a box has room for its title only, a little larger.
function bigText(c, { palette, box, camera }) {
  if (camera.scale < 0.26) return;
  c.textAlign = "center";
  c.textBaseline = "middle";
  c.font = "600 19px system-ui, sans-serif";
  c.fillStyle = palette.ink;
  c.fillText(clipped(c, titleOf(box.item), box.width - 14), box.x + box.width / 2, box.y + box.height / 2);
  c.textAlign = "start";
}
